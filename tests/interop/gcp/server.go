package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// server is go-control-plane behind gRPC on a port that stays the same when it is stopped and started.
type server struct {
	port     int
	cache    served
	grpc     *grpc.Server
	listener net.Listener
	cancel   context.CancelFunc
}

func newServer(port int, cache served) (*server, error) {
	listener, err := listen(port)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return &server{port: listener.Addr().(*net.TCPAddr).Port, cache: cache}, nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func (s *server) start() error {
	if s.grpc != nil {
		return fmt.Errorf("it runs already")
	}
	listener, err := listen(s.port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.listener, s.cancel = listener, cancel
	// The defaults of gRPC servers are too small for a mesh: 4 MiB a request, and few streams.
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(64<<20),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(1<<20),
		// By default one ping in five minutes is allowed, and tests that freeze the server cannot wait for the second.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
	)
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, xds.NewServer(ctx, s.cache, callbacks()))
	go func(serving *grpc.Server) {
		if err := serving.Serve(listener); err != nil {
			emit(map[string]any{"event": "broken", "reason": err.Error()})
		}
	}(s.grpc)
	return nil
}

// stop breaks all connections at once, as a crash would.
func (s *server) stop() {
	if s.grpc == nil {
		return
	}
	s.cancel()
	s.grpc.Stop()
	s.listener.Close() // in case it does not serve yet
	s.grpc = nil
}
