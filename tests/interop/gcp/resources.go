package main

import (
	"fmt"
	"net/netip"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregate "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func listenerWithRoutes(name string, routes *route.RouteConfiguration) *listener.Listener {
	return apiListener(name, &manager.HttpConnectionManager{
		RouteSpecifier: &manager.HttpConnectionManager_RouteConfig{RouteConfig: routes},
	})
}

func listenerAskingFor(name, routes string) *listener.Listener {
	return apiListener(name, &manager.HttpConnectionManager{
		RouteSpecifier: &manager.HttpConnectionManager_Rds{
			Rds: &manager.Rds{ConfigSource: fromAds(), RouteConfigName: routes},
		},
	})
}

func apiListener(name string, http *manager.HttpConnectionManager) *listener.Listener {
	http.HttpFilters = []*manager.HttpFilter{{
		Name:       "router",
		ConfigType: &manager.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})},
	}}
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: packed(http)}}
}

// routes forward all requests to the service's cluster, or to a canary's two; payments has a second route for refunds.
func (m *mesh) routes(service string) *route.RouteConfiguration {
	action := &route.RouteAction{Timeout: durationpb.New(15e9)}
	if limit := m.limits[service]; limit > 0 {
		action.MaxStreamDuration = &route.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(limit)}
	}
	if clusters := endpointClusters(service); len(clusters) == 2 {
		weights := m.weightsOf(service)
		var weighted []*route.WeightedCluster_ClusterWeight
		for i, name := range clusters {
			weighted = append(weighted, &route.WeightedCluster_ClusterWeight{
				Name: m.nameOf(name), Weight: wrapperspb.UInt32(weights[i]),
			})
		}
		action.ClusterSpecifier = &route.RouteAction_WeightedClusters{WeightedClusters: &route.WeightedCluster{Clusters: weighted}}
	} else if m.lost[service] {
		action.ClusterSpecifier = &route.RouteAction_Cluster{Cluster: service + "-lost"}
	} else {
		action.ClusterSpecifier = &route.RouteAction_Cluster{Cluster: m.nameOf(service)}
	}
	host := &route.VirtualHost{
		Name:    service,
		Domains: []string{service, service + ".mesh.example:8080", "*." + service + ".mesh.example"},
	}
	if service == "payments" {
		host.Routes = append(host.Routes, routeTo("/payments.Refunds/", action))
	}
	host.Routes = append(host.Routes, routeTo("/", action))
	return &route.RouteConfiguration{Name: m.routesName(service), VirtualHosts: []*route.VirtualHost{host}}
}

func routeTo(prefix string, action *route.RouteAction) *route.Route {
	return &route.Route{
		Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: prefix}},
		Action: &route.Route_Route{Route: action},
	}
}

func (m *mesh) cluster(name string) *cluster.Cluster {
	made := &cluster.Cluster{
		Name:                 m.nameOf(name),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{
			EdsConfig: fromAds(), ServiceName: m.nameOf(name) + "-endpoints",
		},
	}
	if context, ok := m.secured[name]; ok {
		made.TransportSocket = &core.TransportSocket{
			Name:       "envoy.transport_sockets.tls",
			ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: context},
		}
	}
	if m.reports[name] {
		made.LrsServer = &core.ConfigSource{
			ConfigSourceSpecifier: &core.ConfigSource_Self{Self: &core.SelfConfigSource{TransportApiVersion: core.ApiVersion_V3}},
		}
	}
	switch {
	case m.invalid && name == "payments": // the smallest ring is larger than the largest
		made.LbPolicy = cluster.Cluster_RING_HASH
		made.LbConfig = &cluster.Cluster_RingHashLbConfig_{RingHashLbConfig: &cluster.Cluster_RingHashLbConfig{
			MinimumRingSize: wrapperspb.UInt64(4096), MaximumRingSize: wrapperspb.UInt64(64),
		}}
	case m.invalid && name == "inventory":
		made.CircuitBreakers = &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{
			{MaxRequests: wrapperspb.UInt32(77)},
		}}
	}
	return made
}

func dnsCluster(name, host string, port uint32) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_LOGICAL_DNS},
		LoadAssignment: &endpoint.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpoint.LocalityLbEndpoints{{
				LbEndpoints: []*endpoint.LbEndpoint{lbEndpoint(host, port, core.HealthStatus_UNKNOWN)},
			}},
		},
	}
}

func aggregateCluster(name string, children ...string) *cluster.Cluster {
	return &cluster.Cluster{
		Name: name,
		ClusterDiscoveryType: &cluster.Cluster_ClusterType{ClusterType: &cluster.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: packed(&aggregate.ClusterConfig{Clusters: children}),
		}},
		// Envoy requires CLUSTER_PROVIDED here, which gRPC rejects; gRPC does not use an aggregate's policy.
		LbPolicy: cluster.Cluster_ROUND_ROBIN,
	}
}

func (m *mesh) endpoints(clusterName string) *endpoint.ClusterLoadAssignment {
	localities := m.spread(clusterName)
	if located, ok := m.located[clusterName]; ok {
		localities = m.prioritize(clusterName, located)
	}
	used := localities[:0]
	for _, one := range localities {
		if len(one.LbEndpoints) > 0 {
			used = append(used, one)
		}
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: m.nameOf(clusterName) + "-endpoints", Endpoints: used}
}

// spread assigns the endpoints to the three zones in turn.
func (m *mesh) spread(clusterName string) []*endpoint.LocalityLbEndpoints {
	zones := make([]*endpoint.LocalityLbEndpoints, 3)
	for i, zone := range []string{"a", "b", "c"} {
		zones[i] = &endpoint.LocalityLbEndpoints{
			Locality:            &core.Locality{Region: "eu", Zone: "eu-" + zone},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(100 - 10*i)),
		}
	}
	for i, address := range addresses(clusterName) {
		zone := zones[i%len(zones)]
		zone.LbEndpoints = append(zone.LbEndpoints, m.endpoint(clusterName, address))
	}
	return zones
}

// prioritize has one locality for each priority.
func (m *mesh) prioritize(clusterName string, priorities [][]string) []*endpoint.LocalityLbEndpoints {
	var all []*endpoint.LocalityLbEndpoints
	for priority, addresses := range priorities {
		one := &endpoint.LocalityLbEndpoints{
			Locality:            &core.Locality{Region: "eu", Zone: "eu-a"},
			LoadBalancingWeight: wrapperspb.UInt32(100),
			Priority:            uint32(priority),
		}
		for _, address := range addresses {
			one.LbEndpoints = append(one.LbEndpoints, m.endpoint(clusterName, address))
		}
		all = append(all, one)
	}
	return all
}

func (m *mesh) endpoint(clusterName, address string) *endpoint.LbEndpoint {
	health := core.HealthStatus_HEALTHY
	if m.draining[address] {
		health = core.HealthStatus_DRAINING
	}
	if m.failing[clusterName] {
		health = core.HealthStatus_UNHEALTHY
	}
	at := netip.MustParseAddrPort(address)
	return lbEndpoint(at.Addr().String(), uint32(at.Port()), health)
}

func lbEndpoint(host string, port uint32, health core.HealthStatus) *endpoint.LbEndpoint {
	return &endpoint.LbEndpoint{
		HealthStatus: health,
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
			}}},
		}},
	}
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
