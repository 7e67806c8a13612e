// Writes the resources that istiod sends to a sidecar, to a router and to a proxyless gRPC client: its own discovery server runs in this
// process, with the configuration in mesh.yaml and without Kubernetes. istio DIRECTORY
package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"istio.io/istio/pilot/pkg/xds"
	v3 "istio.io/istio/pilot/pkg/xds/v3"
	fake "istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/test"

	"xdskit.example/interop/dumps/dump"
)

//go:embed mesh.yaml
var mesh string

// A node that subscribes to all of its resources at istiod.
type node struct {
	file     string
	id       string
	metadata map[string]any
	// The names that a gRPC client subscribes to; proxies subscribe to all listeners and clusters.
	listeners []string
}

var nodes = []node{
	{file: "sidecar", id: "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local", metadata: map[string]any{
		"NAMESPACE": "shop", "LABELS": map[string]any{"app": "cart"}, "ISTIO_VERSION": "1.28.0",
	}},
	{file: "router", id: "router~10.0.0.2~ingress-1.shop~shop.svc.cluster.local", metadata: map[string]any{
		"NAMESPACE": "shop", "LABELS": map[string]any{"istio": "ingressgateway"}, "ISTIO_VERSION": "1.28.0",
	}},
	{file: "grpc", id: "sidecar~10.0.0.3~client-1.shop~shop.svc.cluster.local", metadata: map[string]any{
		"NAMESPACE": "shop", "GENERATOR": "grpc", "ISTIO_VERSION": "1.28.0",
	}, listeners: []string{"cart.shop.svc.cluster.local:8080", "web.shop.svc.cluster.local:8080"}},
}

func main() {
	err := test.Wrap(func(t test.Failer) {
		server := fake.NewFakeDiscoveryServer(t, fake.FakeOptions{ConfigString: mesh})
		for _, node := range nodes {
			ads := server.ConnectADS().WithTimeout(20 * time.Second)
			if err := write(t, ads, node); err != nil {
				t.Fatalf("%s: %v", node.file, err)
			}
			ads.Cleanup()
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(t test.Failer, ads *xds.AdsTest, node node) error {
	metadata, err := structpb.NewStruct(node.metadata)
	if err != nil {
		return err
	}
	out := dump.New("istiod", dump.Version("istio.io/istio"), node.id)
	first := true
	ask := func(typeURL string, names []string) ([]*anypb.Any, error) {
		request := &discovery.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names}
		if first {
			request.Node = &corev3.Node{Id: node.id, Metadata: metadata}
			first = false
		}
		response := ads.RequestResponseAck(t, request)
		return response.Resources, out.Add(response.VersionInfo, response.Resources)
	}
	// Proxies request clusters before listeners.
	if len(node.listeners) == 0 {
		clusters, err := ask(v3.ClusterType, nil)
		if err != nil {
			return err
		}
		if names := dump.EndpointNames(clusters); len(names) > 0 {
			if _, err := ask(v3.EndpointType, names); err != nil {
				return err
			}
		}
	}
	listeners, err := ask(v3.ListenerType, node.listeners)
	if err != nil {
		return err
	}
	names, err := dump.RouteNames(listeners)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		routes, err := ask(v3.RouteType, names)
		if err != nil {
			return err
		}
		if err := askForGrpc(node, routes, ask); err != nil {
			return err
		}
	}
	return out.Write(filepath.Join(os.Args[1], node.file+".json"))
}

// A gRPC client subscribes to the clusters of its routes, and to their endpoints.
func askForGrpc(node node, routes []*anypb.Any, ask func(string, []string) ([]*anypb.Any, error)) error {
	if len(node.listeners) == 0 {
		return nil
	}
	var names []string
	for _, resource := range routes {
		var config routev3.RouteConfiguration
		if err := resource.UnmarshalTo(&config); err != nil {
			return err
		}
		for _, host := range config.VirtualHosts {
			for _, route := range host.Routes {
				if cluster := route.GetRoute().GetCluster(); cluster != "" {
					names = append(names, cluster)
				}
				for _, cluster := range route.GetRoute().GetWeightedClusters().GetClusters() {
					names = append(names, cluster.Name)
				}
			}
		}
	}
	clusters, err := ask(v3.ClusterType, dump.Unique(names))
	if err != nil {
		return err
	}
	if names := dump.EndpointNames(clusters); len(names) > 0 {
		_, err = ask(v3.EndpointType, names)
	}
	return err
}
