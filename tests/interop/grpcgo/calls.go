package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

type rpcType = grpc_testing.ClientConfigureRequest_RpcType

// setting is what is configured of the calls of a method.
type setting struct {
	kind     rpcType
	metadata metadata.MD
	timeout  time.Duration
}

// client makes the calls and serves the driver of a test.
type client struct {
	grpc_testing.UnimplementedLoadBalancerStatsServiceServer
	grpc_testing.UnimplementedXdsUpdateClientConfigureServiceServer

	channels []grpc_testing.TestServiceClient
	stats    *stats
	mutex    sync.Mutex
	settings []setting
}

// Configure replaces the settings.
func (c *client) Configure(
	_ context.Context, request *grpc_testing.ClientConfigureRequest,
) (*grpc_testing.ClientConfigureResponse, error) {
	limit := seconds(*timeout)
	if request.GetTimeoutSec() != 0 {
		limit = seconds(int(request.GetTimeoutSec()))
	}
	var settings []setting
	for _, kind := range request.GetTypes() {
		of := metadata.MD{}
		for _, pair := range request.GetMetadata() {
			if pair.GetType() == kind {
				of.Append(pair.GetKey(), pair.GetValue())
			}
		}
		settings = append(settings, setting{kind, of, limit})
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.settings = settings
	return &grpc_testing.ClientConfigureResponse{}, nil
}

func (c *client) current() []setting {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.settings
}

// run makes calls at the configured rate. It returns the first failure that ends the program.
func (c *client) run() error {
	ticker := time.NewTicker(time.Second / time.Duration(*qps*len(c.channels)))
	defer ticker.Stop()
	failed := make(chan error, 1)
	var hasSucceeded atomic.Bool
	for turn := 0; ; turn = (turn + 1) % len(c.channels) {
		select {
		case err := <-failed:
			return fmt.Errorf("a call failed after the first success: %w", err)
		case <-ticker.C:
		}
		for _, setting := range c.current() {
			begun := c.stats.begin(setting.kind)
			go func() {
				host, err := call(c.channels[turn], setting)
				c.stats.end(begun, setting.kind, host, status.Code(err))
				if err == nil {
					hasSucceeded.Store(true)
				} else if *failOnFailure && hasSucceeded.Load() {
					select {
					case failed <- err:
					default: // another one ends the program
					}
				}
			}()
		}
	}
}

// call makes one call, and returns the name of the backend.
func call(channel grpc_testing.TestServiceClient, of setting) (host string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), of.timeout)
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, of.metadata)
	var header metadata.MD
	if of.kind == grpc_testing.ClientConfigureRequest_EMPTY_CALL {
		_, err = channel.EmptyCall(ctx, &grpc_testing.Empty{}, grpc.Header(&header))
	} else {
		var response *grpc_testing.SimpleResponse
		request := &grpc_testing.SimpleRequest{FillServerId: true}
		response, err = channel.UnaryCall(ctx, request, grpc.Header(&header))
		host = response.GetHostname()
	}
	if hosts := header.Get("hostname"); len(hosts) > 0 {
		host = hosts[0]
	}
	return host, err
}
