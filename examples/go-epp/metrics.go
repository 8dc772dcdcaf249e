package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	scrapeTimeout = time.Second
	scrapeLimit   = 4 << 20
	// freshFor is how long a scrape counts; an endpoint with an older one has no known load.
	freshFor = 2 * time.Second
)

// Gauges is what the Model Server Protocol says about load.
type Gauges struct {
	// Queue is the number of requests that wait.
	Queue float64
	// KVCache is the used share of the KV cache, from 0 to 1.
	KVCache float64
}

// queueGauges and cacheGauges are the names that model servers give them.
var (
	queueGauges = map[string]bool{
		"vllm:num_requests_waiting": true, "sglang:num_queue_reqs": true, "trtllm_num_requests_waiting": true,
	}
	cacheGauges = map[string]bool{
		"vllm:kv_cache_usage_perc": true, "vllm:gpu_cache_usage_perc": true, "sglang:token_usage": true,
		"trtllm_kv_cache_utilization": true,
	}
)

type scrape struct {
	gauges Gauges
	at     time.Time
}

// Scraper reads /metrics of every endpoint, each in its own goroutine, so that a slow pod delays no other.
type Scraper struct {
	interval time.Duration
	client   *http.Client

	mu      sync.RWMutex
	stops   map[Endpoint]context.CancelFunc
	scrapes map[Endpoint]scrape
}

// NewScraper makes a scraper that follows nothing yet.
func NewScraper(interval time.Duration) *Scraper {
	return &Scraper{
		interval: interval,
		client:   &http.Client{Timeout: scrapeTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 1}},
		stops:    map[Endpoint]context.CancelFunc{},
		scrapes:  map[Endpoint]scrape{},
	}
}

// Follow scrapes exactly these endpoints from now on.
func (s *Scraper) Follow(ctx context.Context, endpoints []Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := make(map[Endpoint]bool, len(endpoints))
	for _, endpoint := range endpoints {
		wanted[endpoint] = true
		if s.stops[endpoint] == nil {
			scraping, stop := context.WithCancel(ctx)
			s.stops[endpoint] = stop
			go s.run(scraping, endpoint)
		}
	}
	for endpoint, stop := range s.stops {
		if !wanted[endpoint] {
			stop()
			delete(s.stops, endpoint)
			delete(s.scrapes, endpoint)
		}
	}
}

// Gauges is the load of an endpoint, and whether it is known and fresh.
func (s *Scraper) Gauges(endpoint Endpoint) (Gauges, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last, known := s.scrapes[endpoint]
	return last.gauges, known && time.Since(last.at) < freshFor
}

func (s *Scraper) run(ctx context.Context, endpoint Endpoint) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		started := time.Now()
		if gauges, err := s.fetch(ctx, endpoint); err == nil {
			s.mu.Lock()
			if ctx.Err() == nil { // stopped meanwhile: do not bring it back
				s.scrapes[endpoint] = scrape{gauges: gauges, at: started}
			}
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Scraper) fetch(ctx context.Context, endpoint Endpoint) (Gauges, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint.Address.String()+"/metrics", nil)
	if err != nil {
		return Gauges{}, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return Gauges{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Gauges{}, fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	return parseGauges(io.LimitReader(response.Body, scrapeLimit))
}

// parseGauges reads the two gauges from Prometheus text. Where there are several series, one for each model or engine,
// their queues add up and the fullest cache counts. An error if the queue is missing or a value is no load.
func parseGauges(text io.Reader) (Gauges, error) {
	var gauges Gauges
	found := false
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, isSample := splitSample(lines.Text())
		if !isSample || !queueGauges[name] && !cacheGauges[name] {
			continue
		}
		value, err := strconv.ParseFloat(rest, 64)
		if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			return Gauges{}, fmt.Errorf("%s has the value %q", name, rest)
		}
		if queueGauges[name] {
			gauges.Queue += value
			found = true
		} else {
			gauges.KVCache = max(gauges.KVCache, value)
		}
	}
	if err := lines.Err(); err != nil {
		return Gauges{}, err
	}
	if !found {
		return Gauges{}, fmt.Errorf("no gauge of waiting requests")
	}
	return gauges, nil
}

// splitSample takes `name{labels} value [timestamp]` apart; false for comments and blank lines.
func splitSample(line string) (name, value string, isSample bool) {
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 || line[0] == '#' {
		return "", "", false
	}
	rest := line[end:]
	if labelsEnd := strings.LastIndexByte(rest, '}'); labelsEnd >= 0 {
		rest = rest[labelsEnd+1:]
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return "", "", false
	}
	return line[:end], words[0], true
}
