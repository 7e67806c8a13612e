package main

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// server serves the store over aggregated streams, on a port that stays the same when it is stopped and started.
type server struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	port     int
	store    *store
	behavior behavior
	streams  atomic.Int64
	grpc     *grpc.Server
}

func (s *server) start() error {
	if s.grpc != nil {
		return fmt.Errorf("it runs already")
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	// By default one ping in five minutes is allowed.
	policy := keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}
	s.grpc = grpc.NewServer(grpc.KeepaliveEnforcementPolicy(policy))
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	go s.grpc.Serve(listener) // until it is stopped
	return nil
}

// stop breaks all connections at once, as a crash would.
func (s *server) stop() {
	if s.grpc != nil {
		s.grpc.Stop()
		s.grpc = nil
	}
}

func (s *server) StreamAggregatedResources(
	stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	session := &sotwSession{behavior: s.behavior, number: s.streams.Add(1), types: map[string]*sotwType{}}
	return serve(s.store, stream.Recv, func(request *discovery.DiscoveryRequest) error {
		if request != nil {
			if err := session.handle(request); err != nil {
				return err
			}
		}
		return session.respond(s.store, stream.Send)
	})
}

func (s *server) DeltaAggregatedResources(
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
) error {
	session := &deltaSession{behavior: s.behavior, number: s.streams.Add(1), types: map[string]*deltaType{}}
	return serve(s.store, stream.Recv, func(request *discovery.DeltaDiscoveryRequest) error {
		if request != nil {
			if err := session.handle(request); err != nil {
				return err
			}
		}
		return session.respond(s.store, stream.Send)
	})
}

// serve calls the function for each request of a stream, and with nil after each change of the store.
func serve[R any](store *store, receive func() (*R, error), act func(*R) error) error {
	changed, end := store.watch()
	defer end()
	requests, ended := make(chan *R), make(chan struct{})
	defer close(ended)
	go func() {
		defer close(requests)
		for {
			request, err := receive()
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-ended:
				return
			}
		}
	}()
	for {
		var next *R
		select {
		case request, ok := <-requests:
			if !ok {
				return nil
			}
			next = request
		case <-changed:
		}
		if err := act(next); err != nil {
			return err
		}
	}
}

// check rejects the type that is unknown to the server.
func (b behavior) check(url string) error {
	if url == b.unknownType {
		return status.Errorf(codes.Unimplemented, "no generator for %s", url)
	}
	return nil
}
