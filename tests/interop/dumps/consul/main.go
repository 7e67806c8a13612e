// Writes the resources that Consul sends to a sidecar and to a transparent proxy: its own xDS server runs in this process, with the catalog in
// catalog.go and without an agent. consul DIRECTORY
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/consul/acl"
	"github.com/hashicorp/consul/agent/proxycfg"
	"github.com/hashicorp/consul/agent/structs"
	"github.com/hashicorp/consul/agent/xds"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"xdskit.example/interop/dumps/dump"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, directory string) error {
	connection, err := serve(ctx, snapshots())
	if err != nil {
		return err
	}
	defer connection.Close()
	for file, id := range map[string]string{"sidecar": sidecar, "transparent": transparent} {
		out := dump.New("Consul", dump.Version("github.com/hashicorp/consul"), id)
		if err := record(ctx, connection, out); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := out.Write(filepath.Join(directory, file+".json")); err != nil {
			return err
		}
	}
	return nil
}

// serve starts the xDS server on loopback, and connects to it.
func serve(ctx context.Context, proxies source) (*grpc.ClientConn, error) {
	allowAll := func(string) (acl.Authorizer, error) { return acl.ManageAll(), nil }
	server := xds.NewServer(hclog.NewNullLogger(), false, proxies, allowAll, noChecks{}, agent{})
	endpoint, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	grpcServer := grpc.NewServer()
	server.Register(grpcServer)
	go grpcServer.Serve(endpoint)
	context.AfterFunc(ctx, grpcServer.Stop)
	return grpc.DialContext(ctx, endpoint.Addr().String(), grpc.WithInsecure())
}

// source is the server's source of the configuration of proxies, by their ids.
type source map[string]*proxycfg.ConfigSnapshot

func (s source) Watch(id structs.ServiceID) (<-chan *proxycfg.ConfigSnapshot, proxycfg.CancelFunc) {
	snapshots := make(chan *proxycfg.ConfigSnapshot, 1)
	snapshots <- s[id.ID]
	return snapshots, func() {}
}

// noChecks is for a service whose health checks are not exposed by its proxy.
type noChecks struct{}

func (noChecks) ServiceHTTPBasedChecks(structs.ServiceID) []structs.CheckType { return nil }

// agent is the agent on the proxies' host.
type agent struct{}

func (agent) AdvertiseAddrLAN() string { return "10.2.0.1" }

// record subscribes to everything, as Envoy does, and adds the resources once all references are resolved.
func record(ctx context.Context, connection *grpc.ClientConn, out *dump.Dump) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	proxy := &proxy{stream: stream, received: map[string]resources{}, subscribed: map[string]map[string]bool{}}
	if err := proxy.start(out.Node); err != nil {
		return err
	}
	for !proxy.isComplete() {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := proxy.handle(response); err != nil {
			return err
		}
	}
	for _, typeURL := range types {
		if err := out.Add("", proxy.received[typeURL].values()); err != nil {
			return err
		}
	}
	return nil
}
