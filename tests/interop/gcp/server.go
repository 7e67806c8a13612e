package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	runtime "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	secret "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// server is go-control-plane behind gRPC and behind its HTTP gateway, on ports that stay the same when it is stopped and
// started.
type server struct {
	port      int
	gateway   int
	cache     served
	loads     *loads
	grpc      *grpc.Server
	http      *http.Server
	listeners [2]net.Listener
	cancel    context.CancelFunc
}

func newServer(port, gateway int, cache served) (*server, error) {
	made := &server{cache: cache, loads: newLoads()}
	for _, one := range []struct {
		wanted int
		port   *int
	}{{port, &made.port}, {gateway, &made.gateway}} {
		listener, err := listen(one.wanted)
		if err != nil {
			return nil, err
		}
		defer listener.Close() // when both ports are known, so that they differ
		*one.port = listener.Addr().(*net.TCPAddr).Port
	}
	return made, nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func (s *server) start() error {
	if s.grpc != nil {
		return fmt.Errorf("it runs already")
	}
	streams, err := listen(s.port)
	if err != nil {
		return err
	}
	polls, err := listen(s.gateway)
	if err != nil {
		streams.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.listeners, s.cancel = [2]net.Listener{streams, polls}, cancel
	server := xds.NewServer(ctx, s.cache, callbacks())
	s.grpc, s.http = grpcServer(server, s.loads), &http.Server{Handler: gateway{xds.HTTPGateway{Server: server}}}
	go serve(s.grpc.Serve, streams, grpc.ErrServerStopped)
	go serve(s.http.Serve, polls, http.ErrServerClosed)
	return nil
}

func serve(serving func(net.Listener) error, listener net.Listener, end error) {
	if err := serving(listener); err != nil && !errors.Is(err, end) {
		emit(map[string]any{"event": "broken", "reason": err.Error()})
	}
}

// grpcServer serves aggregated streams, those of single types, and those of load reports.
func grpcServer(served xds.Server, loads *loads) *grpc.Server {
	// The defaults of gRPC servers are too small for a mesh: 4 MiB a request, and few streams.
	made := grpc.NewServer(
		grpc.MaxRecvMsgSize(64<<20),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(1<<20),
		// By default one ping in five minutes is allowed, and tests that freeze the server cannot wait for the second.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(made, served)
	listener.RegisterListenerDiscoveryServiceServer(made, served)
	route.RegisterRouteDiscoveryServiceServer(made, served)
	route.RegisterScopedRoutesDiscoveryServiceServer(made, served)
	route.RegisterVirtualHostDiscoveryServiceServer(made, served)
	cluster.RegisterClusterDiscoveryServiceServer(made, served)
	endpoint.RegisterEndpointDiscoveryServiceServer(made, served)
	secret.RegisterSecretDiscoveryServiceServer(made, served)
	runtime.RegisterRuntimeDiscoveryServiceServer(made, served)
	lrs.RegisterLoadReportingServiceServer(made, loads)
	return made
}

// gateway is go-control-plane's gateway, as a handler.
type gateway struct{ xds.HTTPGateway }

func (g gateway) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	body, code, err := g.HTTPGateway.ServeHTTP(request)
	if err != nil {
		http.Error(to, err.Error(), code)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(code)
	to.Write(body) // a client that is gone needs no response
}

// stop breaks all connections at once, as a crash would.
func (s *server) stop() {
	if s.grpc == nil {
		return
	}
	s.cancel()
	s.grpc.Stop()
	s.http.Close()
	for _, listener := range s.listeners {
		listener.Close() // in case it does not serve yet
	}
	s.grpc, s.http = nil, nil
}
