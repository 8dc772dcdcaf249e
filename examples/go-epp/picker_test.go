package main

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func endpoint(address string) Endpoint {
	return Endpoint{UID: types.UID("uid-" + address), Address: netip.MustParseAddrPort(address)}
}

var (
	first  = endpoint("127.0.0.11:8000")
	second = endpoint("127.0.0.12:8000")
	v6     = endpoint("[fd00::1]:8000")
)

// loads makes a picker that knows these loads and no others.
func loads(known map[Endpoint]Gauges) *Picker {
	return &Picker{Load: func(e Endpoint) (Gauges, bool) {
		gauges, ok := known[e]
		return gauges, ok
	}}
}

func subsetOf(items ...any) Subset {
	list, err := structpb.NewList(items)
	if err != nil {
		panic(err)
	}
	return readSubset(structpb.NewListValue(list))
}

func TestPickPrefersTheLeastLoaded(t *testing.T) {
	picker := loads(map[Endpoint]Gauges{first: {Queue: 3}, second: {Queue: 1, KVCache: 0.9}})
	picker.Fallbacks = 2
	picked, refusal := picker.Pick([]Endpoint{v6, first, second}, nil, false)
	if got, want := joinEndpoints(picked), "127.0.0.12:8000,127.0.0.11:8000,[fd00::1]:8000"; refusal != nil || got != want {
		t.Errorf("picked %q, want %q (refusal %v)", got, want, refusal)
	}
}

func TestPickRefuses(t *testing.T) {
	busy := loads(map[Endpoint]Gauges{first: {Queue: 100}, second: {KVCache: 0.95}})
	all := []Endpoint{first, second}
	for name, c := range map[string]struct {
		endpoints []Endpoint
		subset    Subset
		sheddable bool
		status    int
	}{
		"an empty pool":                       {nil, nil, false, http.StatusServiceUnavailable},
		"an empty pool, a sheddable request":  {nil, nil, true, http.StatusServiceUnavailable},
		"an empty subset":                     {all, Subset{}, false, http.StatusServiceUnavailable},
		"a subset of strangers":               {all, subsetOf("10.0.0.1:8000"), false, http.StatusServiceUnavailable},
		"a subset with another port":          {all, subsetOf("127.0.0.11:8001"), false, http.StatusServiceUnavailable},
		"a busy pool, a sheddable request":    {all, nil, true, http.StatusTooManyRequests},
		"a busy pool":                         {all, nil, false, 0},
		"one unknown load, may be shed":       {append(all, v6), nil, true, 0},
		"a subset of busy ones, may be shed":  {append(all, v6), subsetOf("127.0.0.11:8000"), true, 429},
		"a subset of strangers, may be shed":  {all, subsetOf("10.0.0.1:8000"), true, 503},
		"a subset with strangers and members": {all, subsetOf("10.0.0.1:8000", "127.0.0.11:8000"), false, 0},
	} {
		picked, refusal := busy.Pick(c.endpoints, c.subset, c.sheddable)
		status := 0
		if refusal != nil {
			status = refusal.Status
		}
		if status != c.status || (status == 0) != (len(picked) == 1) {
			t.Errorf("%s: picked %v, status %d; want status %d", name, picked, status, c.status)
		}
	}
}

func TestReadSubset(t *testing.T) {
	if subset := readSubset(nil); subset != nil || !subset.Allows(first.Address) {
		t.Errorf("a key that is not set restricts: %v", subset)
	}
	for name, value := range map[string]*structpb.Value{
		"null":               structpb.NewNullValue(),
		"number":             structpb.NewNumberValue(8000),
		"bool":               structpb.NewBoolValue(true),
		"struct":             structpb.NewStructValue(&structpb.Struct{}),
		"list without value": structpb.NewListValue(nil),
		"value without kind": {},
	} {
		if subset := readSubset(value); subset == nil || len(subset) > 0 {
			t.Errorf("%s: got %v, want an empty subset", name, subset)
		}
	}
	mixed := subsetOf(" 127.0.0.11:8000 ", 5, nil, []any{"127.0.0.12:8000"}, "127.0.0.12", "[FD00:0::1]:8000")
	flat := readSubset(structpb.NewStringValue("127.0.0.11:8000, [fd00::1]:8000"))
	for _, subset := range []Subset{mixed, flat} {
		if !subset.Allows(first.Address) || !subset.Allows(v6.Address) || len(subset) != 2 {
			t.Errorf("got %v", subset)
		}
	}
}

func TestEndpointsOfPod(t *testing.T) {
	pool, err := read[inferencePool](unstructuredObject(map[string]any{"spec": map[string]any{
		"selector":    map[string]any{"matchLabels": map[string]any{"app": "llm"}},
		"targetPorts": []any{map[string]any{"number": int64(8000)}, map[string]any{"number": int64(8001)}},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"ready":        {func(*corev1.Pod) {}, []string{"127.0.0.11:8000", "127.0.0.11:8001"}},
		"IPv6":         {func(p *corev1.Pod) { p.Status.PodIP = "::1" }, []string{"[::1]:8000", "[::1]:8001"}},
		"active ports": {func(p *corev1.Pod) { p.Annotations = map[string]string{activePorts: "8001, 9"} }, []string{"127.0.0.11:8001"}},
		"no address":   {func(p *corev1.Pod) { p.Status.PodIP = "" }, nil},
		"other label":  {func(p *corev1.Pod) { p.Labels["app"] = "web" }, nil},
		"terminating":  {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, nil},
		"un-ready":     {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, nil},
		"no condition": {func(p *corev1.Pod) { p.Status.Conditions = nil }, nil},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Labels: map[string]string{"app": "llm", "more": "x"}},
			Status: corev1.PodStatus{PodIP: "127.0.0.11", Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		}
		c.change(pod)
		var got []string
		for _, endpoint := range endpointsOf(pool, pod) {
			got = append(got, endpoint.Address.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestParseGauges(t *testing.T) {
	text := "# HELP vllm:num_requests_waiting text\n# TYPE vllm:num_requests_waiting gauge\n" +
		"vllm:num_requests_waiting{model_name=\"a}b\"} 2 1700000000000\nvllm:num_requests_waiting{model_name=\"c\"} 1.0\n" +
		"vllm:kv_cache_usage_perc 0.25\nother{a=\"b\"} NaN\n\n"
	if got, err := parseGauges(strings.NewReader(text)); err != nil || got != (Gauges{Queue: 3, KVCache: 0.25}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "<html>", "vllm:num_requests_waiting", "vllm:num_requests_waiting NaN", "vllm:num_requests_waiting -1"} {
		if got, err := parseGauges(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}
