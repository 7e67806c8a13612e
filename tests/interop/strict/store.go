package main

import (
	"fmt"
	"strconv"
	"sync"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// store contains the resources. Versions count the changes of a type.
type store struct {
	mutex    sync.Mutex
	services map[string]service
	types    map[string]resources // by type URL
	watchers map[chan struct{}]bool
}

// service is the source of a listener and a cluster with one name.
type service struct {
	value    uint32
	rejected bool
}

// resources are the resources of one type. They are replaced and never modified.
type resources struct {
	version int
	byName  map[string]versioned
}

// versioned is a resource with the version of its type at its last change.
type versioned struct {
	version string
	body    *anypb.Any
}

func newStore() *store {
	return &store{services: map[string]service{}, types: map[string]resources{}, watchers: map[chan struct{}]bool{}}
}

// alter changes one service, and wakes all streams.
func (s *store) alter(verb, name string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known, ok := s.services[name]
	if ok == (verb == "add") {
		return fmt.Errorf("is there a service of that name?")
	}
	switch verb {
	case "add":
	case "change":
		known.value++
	case "reject", "repair":
		known.rejected = verb == "reject"
	case "remove":
	default:
		return fmt.Errorf("unknown command")
	}
	if verb == "remove" {
		delete(s.services, name)
	} else {
		s.services[name] = known
	}
	s.update(clusterType, func(name string, of service) proto.Message { return clusterOf(name, of) })
	s.update(listenerType, func(name string, of service) proto.Message { return listenerOf(name, of) })
	for watcher := range s.watchers {
		select {
		case watcher <- struct{}{}:
		default: // the last notification has not been received yet
		}
	}
	return nil
}

// update rebuilds the resources of a type, if one has changed.
func (s *store) update(url string, build func(string, service) proto.Message) {
	before := s.types[url]
	after := resources{version: before.version + 1, byName: map[string]versioned{}}
	isNew := len(before.byName) != len(s.services)
	for name, of := range s.services {
		body := packed(build(name, of))
		held, ok := before.byName[name]
		if !ok || !proto.Equal(held.body, body) {
			held, isNew = versioned{version: strconv.Itoa(after.version), body: body}, true
		}
		after.byName[name] = held
	}
	if isNew {
		s.types[url] = after
	}
}

func (s *store) get(url string) resources {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.types[url]
}

func (s *store) versions() map[string]string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	versions := map[string]string{}
	for url, of := range s.types {
		versions[short(url)] = strconv.Itoa(of.version)
	}
	return versions
}

// watch returns a channel that is readable after changes, and a function that ends the watch.
func (s *store) watch() (<-chan struct{}, func()) {
	watcher := make(chan struct{}, 1)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.watchers[watcher] = true
	return watcher, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.watchers, watcher)
	}
}

func clusterOf(name string, of service) *cluster.Cluster {
	made := &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: fromAds()},
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{
			{MaxRequests: wrapperspb.UInt32(100 + of.value)},
		}},
	}
	if of.rejected { // the smallest ring is larger than the largest
		made.LbPolicy = cluster.Cluster_RING_HASH
		made.LbConfig = &cluster.Cluster_RingHashLbConfig_{RingHashLbConfig: &cluster.Cluster_RingHashLbConfig{
			MinimumRingSize: wrapperspb.UInt64(4096), MaximumRingSize: wrapperspb.UInt64(64),
		}}
	}
	return made
}

// listenerOf leads to routes whose name changes with the value.
func listenerOf(name string, of service) *listener.Listener {
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{
		ApiListener: packed(&manager.HttpConnectionManager{
			RouteSpecifier: &manager.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
				Name: fmt.Sprintf("%s-%d", name, of.value),
			}},
			HttpFilters: []*manager.HttpFilter{{
				Name:       "router",
				ConfigType: &manager.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})},
			}},
		}),
	}}
}

func fromAds() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func packed(message proto.Message) *anypb.Any {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(fmt.Sprintf("a message of our own cannot be packed: %v", err))
	}
	return out
}
