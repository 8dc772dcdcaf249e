package main

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

const (
	// An endpoint above either is busy; when all are busy, requests that may be shed are.
	busyQueue   = 5
	busyKVCache = 0.8
)

// Refusal says why there is no endpoint; it becomes an ImmediateResponse (protocol, "Destination Endpoint").
type Refusal struct {
	Status int
	Reason string
}

// Picker chooses among endpoints.
type Picker struct {
	// Load is the load of an endpoint, and whether it is known.
	Load func(Endpoint) (Gauges, bool)
	// Fallbacks is how many endpoints may follow the first.
	Fallbacks int
}

type candidate struct {
	address netip.AddrPort
	load    Gauges
	known   bool
}

// Pick orders the endpoints that the subset allows, least loaded first, and returns the first of them and its
// fallbacks. The subset comes first: a request that no endpoint may serve is unavailable, not dropped.
func (p *Picker) Pick(endpoints []Endpoint, subset Subset, sheddable bool) ([]netip.AddrPort, *Refusal) {
	var candidates []candidate
	for _, endpoint := range endpoints {
		if subset.Allows(endpoint.Address) {
			load, known := p.Load(endpoint)
			candidates = append(candidates, candidate{address: endpoint.Address, load: load, known: known})
		}
	}
	if len(candidates) == 0 {
		return nil, &Refusal{Status: http.StatusServiceUnavailable, Reason: "no ready endpoint"}
	}
	if sheddable && !slices.ContainsFunc(candidates, func(c candidate) bool { return !c.busy() }) {
		return nil, &Refusal{Status: http.StatusTooManyRequests, Reason: "every endpoint is busy"}
	}
	// Equals are tried in random order: scrapes lag, and a burst must not go to one pod.
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	slices.SortStableFunc(candidates, candidate.compare)

	picked := make([]netip.AddrPort, 0, p.Fallbacks+1)
	for _, c := range candidates[:min(len(candidates), p.Fallbacks+1)] {
		picked = append(picked, c.address)
	}
	return picked, nil
}

// busy needs evidence: an endpoint whose load is unknown is not called busy.
func (c candidate) busy() bool {
	return c.known && (c.load.Queue > busyQueue || c.load.KVCache > busyKVCache)
}

// compare puts known loads before unknown ones, short queues before long ones, empty caches before full ones.
func (c candidate) compare(other candidate) int {
	if c.known != other.known {
		if c.known {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.load.Queue, other.load.Queue), cmp.Compare(c.load.KVCache, other.load.KVCache))
}

// Subset is the data plane's restriction: nil allows every endpoint, an empty one none.
type Subset map[netip.AddrPort]bool

// Allows says whether the endpoint, its port included, is in the subset.
func (s Subset) Allows(endpoint netip.AddrPort) bool {
	return s == nil || s[endpoint]
}

// readSubset reads the list of `<ip:port>` (protocol, "Endpoint Subset"). nil means the key is not set. A flat string is
// read as a comma-separated list, as some data planes can only write that. Any other value, or item, names no
// endpoint: a restriction that can't be read must not become no restriction.
func readSubset(value *structpb.Value) Subset {
	if value == nil {
		return nil
	}
	var items []string
	switch kind := value.GetKind().(type) {
	case *structpb.Value_ListValue:
		for _, item := range kind.ListValue.GetValues() {
			items = append(items, item.GetStringValue())
		}
	case *structpb.Value_StringValue:
		items = strings.Split(kind.StringValue, ",")
	}
	subset := Subset{}
	for _, item := range items {
		if address, err := netip.ParseAddrPort(strings.TrimSpace(item)); err == nil {
			subset[netip.AddrPortFrom(address.Addr().Unmap(), address.Port())] = true
		}
	}
	return subset
}

// joinEndpoints writes `<ip:port>,<ip:port>,...`; IPv6 addresses are in brackets.
func joinEndpoints(endpoints []netip.AddrPort) string {
	words := make([]string, 0, len(endpoints))
	for _, endpoint := range endpoints {
		words = append(words, endpoint.String())
	}
	return strings.Join(words, ",")
}
