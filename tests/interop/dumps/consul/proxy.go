package main

import (
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"xdskit.example/interop/dumps/dump"
)

const (
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

var types = []string{clusterType, endpointType, listenerType, routeType}

// resources of one type, by name.
type resources map[string]*anypb.Any

func (r resources) values() []*anypb.Any {
	return slices.Collect(maps.Values(r))
}

// proxy subscribes to resources as Envoy does: all listeners and clusters, and the resources that these refer to.
type proxy struct {
	stream     discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	received   map[string]resources
	subscribed map[string]map[string]bool
}

func (p *proxy) start(id string) error {
	for _, typeURL := range types {
		p.received[typeURL] = resources{}
		p.subscribed[typeURL] = map[string]bool{}
	}
	if err := p.stream.Send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: clusterType}); err != nil {
		return err
	}
	return p.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: listenerType})
}

func (p *proxy) handle(response *discovery.DeltaDiscoveryResponse) error {
	received := p.received[response.TypeUrl]
	for _, name := range response.RemovedResources {
		delete(received, name)
	}
	for _, resource := range response.Resources {
		received[resource.Name] = resource.Resource
	}
	ack := &discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
	if err := p.stream.Send(ack); err != nil {
		return err
	}
	if err := p.subscribe(endpointType, p.endpointNames()); err != nil {
		return err
	}
	names, err := p.routeNames()
	if err != nil {
		return err
	}
	return p.subscribe(routeType, names)
}

func (p *proxy) subscribe(typeURL string, names []string) error {
	subscribed := p.subscribed[typeURL]
	names = slices.DeleteFunc(names, func(name string) bool { return subscribed[name] })
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		subscribed[name] = true
	}
	return p.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

func (p *proxy) endpointNames() []string {
	return dump.EndpointNames(p.received[clusterType].values())
}

func (p *proxy) routeNames() ([]string, error) {
	return dump.RouteNames(p.received[listenerType].values())
}

// isComplete returns whether all resources that listeners and clusters refer to were received.
func (p *proxy) isComplete() bool {
	if len(p.received[clusterType]) == 0 || len(p.received[listenerType]) == 0 {
		return false
	}
	routes, err := p.routeNames()
	return err == nil && p.has(routeType, routes) && p.has(endpointType, p.endpointNames())
}

func (p *proxy) has(typeURL string, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return p.received[typeURL][name] == nil })
}
