package main

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
)

// stats counts where calls went, and how they ended.
type stats struct {
	mutex     sync.Mutex
	started   map[string]int32
	succeeded map[string]int32
	failed    map[string]int32
	results   map[string]map[int32]int32
	watchers  map[*watcher]bool
}

// watcher is a request for the distribution of the next calls.
type watcher struct {
	toBegin, toEnd int32
	response       *grpc_testing.LoadBalancerStatsResponse
	complete       chan struct{}
}

func newStats() *stats {
	return &stats{
		started: map[string]int32{}, succeeded: map[string]int32{}, failed: map[string]int32{},
		results: map[string]map[int32]int32{}, watchers: map[*watcher]bool{},
	}
}

func (s *stats) begin(kind rpcType) (begun []*watcher) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.started[kind.String()]++
	for watcher := range s.watchers {
		if watcher.toBegin > 0 {
			watcher.toBegin--
			begun = append(begun, watcher)
		}
	}
	return begun
}

func (s *stats) end(begun []*watcher, kind rpcType, host string, code codes.Code) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.results[kind.String()] == nil {
		s.results[kind.String()] = map[int32]int32{}
	}
	s.results[kind.String()][int32(code)]++
	if code == codes.OK {
		s.succeeded[kind.String()]++
	} else {
		s.failed[kind.String()]++
	}
	for _, watcher := range begun {
		watcher.end(kind, host, code)
	}
}

func (w *watcher) end(kind rpcType, host string, code codes.Code) {
	if code == codes.OK && host != "" {
		method := map[rpcType]string{
			grpc_testing.ClientConfigureRequest_UNARY_CALL: "UnaryCall",
			grpc_testing.ClientConfigureRequest_EMPTY_CALL: "EmptyCall",
		}[kind]
		w.response.RpcsByPeer[host]++
		if w.response.RpcsByMethod[method] == nil {
			w.response.RpcsByMethod[method] = &grpc_testing.LoadBalancerStatsResponse_RpcsByPeer{RpcsByPeer: map[string]int32{}}
		}
		w.response.RpcsByMethod[method].RpcsByPeer[host]++
	} else {
		w.response.NumFailures++
	}
	w.toEnd--
	if w.toEnd == 0 {
		close(w.complete)
	}
}

// GetClientStats waits until as many calls as requested have begun and ended, up to the timeout of the request.
func (c *client) GetClientStats(
	ctx context.Context, request *grpc_testing.LoadBalancerStatsRequest,
) (*grpc_testing.LoadBalancerStatsResponse, error) {
	watcher := &watcher{
		toBegin: request.GetNumRpcs(), toEnd: request.GetNumRpcs(), complete: make(chan struct{}),
		response: &grpc_testing.LoadBalancerStatsResponse{
			RpcsByPeer:   map[string]int32{},
			RpcsByMethod: map[string]*grpc_testing.LoadBalancerStatsResponse_RpcsByPeer{},
		},
	}
	c.stats.mutex.Lock()
	c.stats.watchers[watcher] = true
	c.stats.mutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(request.GetTimeoutSec())*time.Second)
	defer cancel()
	select {
	case <-watcher.complete:
	case <-ctx.Done():
	}
	c.stats.mutex.Lock()
	defer c.stats.mutex.Unlock()
	delete(c.stats.watchers, watcher)
	// Calls that have not ended are failures, and may still end while the response is sent.
	response := &grpc_testing.LoadBalancerStatsResponse{
		NumFailures:  watcher.response.NumFailures + watcher.toEnd,
		RpcsByPeer:   maps.Clone(watcher.response.RpcsByPeer),
		RpcsByMethod: map[string]*grpc_testing.LoadBalancerStatsResponse_RpcsByPeer{},
	}
	for method, rpcs := range watcher.response.RpcsByMethod {
		response.RpcsByMethod[method] = &grpc_testing.LoadBalancerStatsResponse_RpcsByPeer{RpcsByPeer: maps.Clone(rpcs.RpcsByPeer)}
	}
	return response, nil
}

// GetClientAccumulatedStats returns the counts of all calls.
func (c *client) GetClientAccumulatedStats(
	context.Context, *grpc_testing.LoadBalancerAccumulatedStatsRequest,
) (*grpc_testing.LoadBalancerAccumulatedStatsResponse, error) {
	c.stats.mutex.Lock()
	defer c.stats.mutex.Unlock()
	response := &grpc_testing.LoadBalancerAccumulatedStatsResponse{
		NumRpcsStartedByMethod:   maps.Clone(c.stats.started),
		NumRpcsSucceededByMethod: maps.Clone(c.stats.succeeded),
		NumRpcsFailedByMethod:    maps.Clone(c.stats.failed),
		StatsPerMethod:           map[string]*grpc_testing.LoadBalancerAccumulatedStatsResponse_MethodStats{},
	}
	for method, started := range c.stats.started {
		response.StatsPerMethod[method] = &grpc_testing.LoadBalancerAccumulatedStatsResponse_MethodStats{
			RpcsStarted: started, Result: maps.Clone(c.stats.results[method]),
		}
	}
	return response, nil
}
