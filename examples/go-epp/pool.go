package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	poolGroup = "inference.networking.k8s.io"
	// activePorts narrows the pool's target ports for one pod: a comma-separated list of port numbers.
	activePorts = "inference.networking.k8s.io/active-ports"
	// typedContent is what client-go's own clients ask for: protobuf for built-in kinds, JSON where a server has no other.
	typedContent = "application/vnd.kubernetes.protobuf,application/json"
)

var (
	poolResource      = schema.GroupVersionResource{Group: poolGroup, Version: "v1", Resource: "inferencepools"}
	objectiveResource = schema.GroupVersionResource{
		Group: "inference.networking.x-k8s.io", Version: "v1alpha2", Resource: "inferenceobjectives",
	}
)

// Endpoint is one port of one pod. The UID belongs to it: a new pod under an old name, or at an old address, is another
// endpoint with its own load.
type Endpoint struct {
	UID     types.UID
	Address netip.AddrPort
}

// inferencePool holds the fields of InferencePool v1 that decide which endpoints there are.
type inferencePool struct {
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int32 `json:"number"`
		} `json:"targetPorts"`
	} `json:"spec"`
}

// inferenceObjective holds the fields of InferenceObjective v1alpha2 that decide whether a request may be shed.
type inferenceObjective struct {
	Spec struct {
		Priority int `json:"priority"`
		PoolRef  struct {
			Group string `json:"group"`
			Name  string `json:"name"`
		} `json:"poolRef"`
	} `json:"spec"`
}

// Pool follows one InferencePool, the pods of its namespace and the objectives, through informers.
type Pool struct {
	namespace, name string

	client     dynamic.Interface
	pool       cache.SharedIndexInformer
	pods       cache.SharedIndexInformer
	objectives cache.SharedIndexInformer

	changed   func(endpoints []Endpoint, known bool)
	rebuilds  sync.Mutex
	endpoints atomic.Pointer[[]Endpoint]
}

// NewPool prepares the informers; Run starts them. changed is called after every change with the ready endpoints, and
// with whether they are known: false until the first lists are complete, and while the InferencePool does not exist.
func NewPool(config *rest.Config, namespace, name string, changed func([]Endpoint, bool)) (*Pool, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods, err := podListWatch(config, namespace)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		namespace:  namespace,
		name:       name,
		client:     client,
		pods:       cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{}),
		pool:       customInformer(client, poolResource, namespace, fields.OneTermEqualSelector("metadata.name", name)),
		objectives: customInformer(client, objectiveResource, namespace, fields.Everything()),
		changed:    changed,
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.rebuild() },
		UpdateFunc: func(any, any) { p.rebuild() },
		DeleteFunc: func(any) { p.rebuild() },
	}
	for _, informer := range []cache.SharedIndexInformer{p.pool, p.pods} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// podListWatch reads pods with the typed client: the kinds that Kubernetes builds in may travel as protobuf.
func podListWatch(config *rest.Config, namespace string) (cache.ListerWatcher, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = typedContent
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return cache.NewListWatchFromClient(client, "pods", namespace, fields.Everything()), nil
}

func customInformer(
	client dynamic.Interface, resource schema.GroupVersionResource, namespace string, selector fields.Selector,
) cache.SharedIndexInformer {
	objects := client.Resource(resource).Namespace(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			return objects.Watch(ctx, options)
		},
	}
	return cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// Run follows the cluster until ctx ends.
func (p *Pool) Run(ctx context.Context) {
	go p.pool.RunWithContext(ctx)
	go p.pods.RunWithContext(ctx)
	go p.followObjectives(ctx)
	if cache.WaitForCacheSync(ctx.Done(), p.pool.HasSynced, p.pods.HasSynced) {
		p.rebuild() // an empty list calls no handler
	}
}

// followObjectives asks first: a cluster may well lack this kind, and an informer would complain without end.
func (p *Pool) followObjectives(ctx context.Context) {
	_, err := p.client.Resource(objectiveResource).Namespace(p.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		slog.Info("no InferenceObjectives in this cluster: nothing is shed")
		return
	}
	p.objectives.RunWithContext(ctx)
}

// rebuild derives the endpoints from what the informers hold. Informers store an object before they tell of it, so
// under the lock the last rebuild sees the latest state of both.
func (p *Pool) rebuild() {
	if !p.pool.HasSynced() || !p.pods.HasSynced() {
		return
	}
	p.rebuilds.Lock()
	defer p.rebuilds.Unlock()
	pool, known := p.current()
	var endpoints []Endpoint
	if known {
		for _, object := range p.pods.GetStore().List() {
			endpoints = append(endpoints, endpointsOf(pool, object.(*corev1.Pod))...)
		}
	}
	p.endpoints.Store(&endpoints)
	p.changed(endpoints, known)
}

// current reads the InferencePool; false if there is none, it is being deleted, or it can't be read.
func (p *Pool) current() (inferencePool, bool) {
	object, exists, _ := p.pool.GetStore().GetByKey(p.namespace + "/" + p.name)
	if !exists || object.(*unstructured.Unstructured).GetDeletionTimestamp() != nil {
		return inferencePool{}, false
	}
	pool, err := read[inferencePool](object)
	if err != nil {
		slog.Error("InferencePool", "name", p.name, "error", err)
	}
	return pool, err == nil
}

// Endpoints are the ready endpoints at this instant; callers must not change them.
func (p *Pool) Endpoints() []Endpoint {
	if endpoints := p.endpoints.Load(); endpoints != nil {
		return *endpoints
	}
	return nil
}

// Priority is that of the named InferenceObjective of this pool, or 0.
func (p *Pool) Priority(objective string) int {
	object, exists, _ := p.objectives.GetStore().GetByKey(p.namespace + "/" + objective)
	if !exists {
		return 0
	}
	found, err := read[inferenceObjective](object)
	ref := found.Spec.PoolRef
	if err != nil || ref.Name != p.name || (ref.Group != "" && ref.Group != poolGroup) {
		return 0
	}
	return found.Spec.Priority
}

// read turns an object of a custom kind into a struct with its few fields of interest.
func read[T any](object any) (T, error) {
	var into T
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, &into)
	if err != nil {
		return into, fmt.Errorf("unexpected fields: %w", err)
	}
	return into, nil
}

// endpointsOf are the endpoints of one pod: one for each active port if the pod is selected, ready and not terminating.
func endpointsOf(pool inferencePool, pod *corev1.Pod) []Endpoint {
	matchLabels := pool.Spec.Selector.MatchLabels
	selected := len(matchLabels) > 0 && labels.SelectorFromSet(matchLabels).Matches(labels.Set(pod.Labels))
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if !selected || err != nil || pod.DeletionTimestamp != nil || !ready(pod) {
		return nil
	}
	var active []string
	annotation, narrowed := pod.Annotations[activePorts]
	for port := range strings.SplitSeq(annotation, ",") {
		active = append(active, strings.TrimSpace(port))
	}
	var endpoints []Endpoint
	for _, port := range pool.Spec.TargetPorts {
		if narrowed && !slices.Contains(active, strconv.Itoa(int(port.Number))) {
			continue
		}
		endpoints = append(endpoints, Endpoint{
			UID: pod.UID, Address: netip.AddrPortFrom(address.Unmap(), uint16(port.Number)),
		})
	}
	return endpoints
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
