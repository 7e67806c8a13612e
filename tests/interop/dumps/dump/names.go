package dump

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// EndpointNames returns the names of the endpoints of EDS clusters.
func EndpointNames(clusters []*anypb.Any) []string {
	var names []string
	for _, resource := range clusters {
		var cluster clusterv3.Cluster
		if resource.UnmarshalTo(&cluster) != nil || cluster.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		name := cluster.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = cluster.Name
		}
		names = append(names, name)
	}
	return Unique(names)
}

// RouteNames returns the names of the routes in the HTTP filters of listeners.
func RouteNames(listeners []*anypb.Any) ([]string, error) {
	var names []string
	for _, resource := range listeners {
		var listener listenerv3.Listener
		if err := resource.UnmarshalTo(&listener); err != nil {
			return nil, err
		}
		configs := []*anypb.Any{listener.GetApiListener().GetApiListener()}
		chains := append([]*listenerv3.FilterChain{listener.DefaultFilterChain}, listener.FilterChains...)
		for _, chain := range chains {
			for _, filter := range chain.GetFilters() {
				configs = append(configs, filter.GetTypedConfig())
			}
		}
		for _, config := range configs {
			if !strings.HasSuffix(config.GetTypeUrl(), ".HttpConnectionManager") {
				continue
			}
			var manager hcmv3.HttpConnectionManager
			if err := proto.Unmarshal(config.Value, &manager); err != nil {
				return nil, err
			}
			if name := manager.GetRds().GetRouteConfigName(); name != "" {
				names = append(names, name)
			}
		}
	}
	return Unique(names), nil
}

// Unique sorts names and drops repetitions.
func Unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
