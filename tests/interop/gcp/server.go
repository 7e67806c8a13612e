package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"sort"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
)

// server is go-control-plane behind gRPC on a port that stays the same when it is stopped and started.
type server struct {
	port     int
	cache    cache.SnapshotCache
	grpc     *grpc.Server
	cancel   context.CancelFunc
	versions map[string]int    // by type URL; grows only when a resource of the type changes
	bodies   map[string][]byte // by type URL, to see that
}

func newServer(port int) (*server, error) {
	listener, err := listen(port)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return &server{
		port: listener.Addr().(*net.TCPAddr).Port,
		// Not in ADS mode, which answers no request that leaves out a resource of the snapshot.
		cache:    cache.NewSnapshotCache(false, everyNode{}, nil),
		versions: map[string]int{},
		bodies:   map[string][]byte{},
	}, nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// everyNode gives the same mesh to all clients.
type everyNode struct{}

func (everyNode) ID(*core.Node) string { return meshKey }

const meshKey = "mesh"

func (s *server) start() error {
	if s.grpc != nil {
		return fmt.Errorf("it runs already")
	}
	listener, err := listen(s.port)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
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
	s.grpc = nil
}

// publish serves the mesh to all clients. A type whose resources stayed the same keeps its version.
func (s *server) publish(mesh *mesh) error {
	snapshot := &cache.Snapshot{}
	for url, resources := range mesh.resources() {
		body, err := canonical(resources)
		if err != nil {
			return err
		}
		if !bytes.Equal(body, s.bodies[url]) || s.versions[url] == 0 {
			s.versions[url]++
			s.bodies[url] = body
		}
		snapshot.Resources[cache.GetResponseType(url)] = cache.NewResources(strconv.Itoa(s.versions[url]), resources)
	}
	return s.cache.SetSnapshot(context.Background(), meshKey, snapshot)
}

func canonical(resources []types.Resource) ([]byte, error) {
	bodies := make([][]byte, 0, len(resources))
	for _, resource := range resources {
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(resource)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	sort.Slice(bodies, func(i, j int) bool { return bytes.Compare(bodies[i], bodies[j]) < 0 })
	return bytes.Join(bodies, []byte{0xff}), nil
}

func (s *server) versionsByType() map[string]string {
	versions := map[string]string{}
	for url, version := range s.versions {
		versions[short(url)] = strconv.Itoa(version)
	}
	return versions
}

// callbacks tell of streams, requests and responses.
func callbacks() xds.Callbacks {
	return xds.CallbackFuncs{
		StreamOpenFunc: func(_ context.Context, stream int64, _ string) error {
			emit(map[string]any{"event": "opened", "stream": stream})
			return nil
		},
		StreamClosedFunc: func(stream int64, _ *core.Node) {
			emit(map[string]any{"event": "closed", "stream": stream})
		},
		StreamRequestFunc: func(stream int64, request *discovery.DiscoveryRequest) error {
			event := map[string]any{
				"event": "request", "stream": stream, "type": short(request.GetTypeUrl()), "node": request.GetNode().GetId(),
				"version": request.GetVersionInfo(), "nonce": request.GetResponseNonce(),
				"names": len(request.GetResourceNames()), "bytes": proto.Size(request),
			}
			if detail := request.GetErrorDetail(); detail != nil {
				event["error"] = map[string]any{"code": detail.GetCode(), "message": detail.GetMessage()}
			}
			emit(event)
			return nil
		},
		StreamResponseFunc: func(_ context.Context, stream int64, _ *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse) {
			emit(map[string]any{
				"event": "response", "stream": stream, "type": short(response.GetTypeUrl()), "version": response.GetVersionInfo(),
				"nonce": response.GetNonce(), "resources": len(response.GetResources()), "bytes": proto.Size(response),
			})
		},
	}
}

// short is the last part of a type URL: Cluster.
func short(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}
