package main

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// testService describes the unary methods of grpc.testing.TestService, as the servers of gRPC's xDS interoperability tests have them.
func (b *backend) testService() *grpc.ServiceDesc {
	description := &grpc.ServiceDesc{ServiceName: "grpc.testing.TestService", HandlerType: (*any)(nil)}
	for method, response := range map[string][]byte{
		"EmptyCall": nil,
		// A SimpleResponse whose field 6 is the hostname.
		"UnaryCall": append([]byte{6<<3 | 2, byte(len(b.name))}, b.name...),
	} {
		description.Streams = append(description.Streams, grpc.StreamDesc{
			StreamName: method, ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				b.count(method)
				if _, err := receive(stream); err != nil {
					return err
				}
				// Headers before the status would commit the call, so that it is not retried.
				if err := b.behave(stream); err != nil {
					return err
				}
				if err := stream.SetHeader(metadata.Pairs("hostname", b.name)); err != nil {
					return err
				}
				return stream.SendMsg(response)
			},
		})
	}
	return description
}

// behave does what the metadata rpc-behavior requests, one after the other, if it is for this server.
func (b *backend) behave(stream grpc.ServerStream) error {
	received, _ := metadata.FromIncomingContext(stream.Context())
	attempts := "0"
	if previous := received.Get("grpc-previous-rpc-attempts"); len(previous) > 0 {
		attempts = previous[0]
	}
	for _, behavior := range strings.Split(strings.Join(received.Get("rpc-behavior"), ","), ",") {
		if host, rest, isFor := strings.Cut(behavior, " "); isFor {
			if host != "hostname="+b.name {
				continue
			}
			behavior = rest
		}
		var number int
		switch {
		case behavior == "":
		case behavior == "keep-open":
			<-stream.Context().Done()
			return stream.Context().Err()
		case scans(behavior, "sleep-%d", &number):
			select {
			case <-time.After(time.Duration(number) * time.Second):
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		case scans(behavior, "error-code-%d", &number):
			return status.Error(codes.Code(number), "as requested by rpc-behavior")
		case scans(behavior, "succeed-on-retry-attempt-%d", &number):
			if attempts == fmt.Sprint(number) {
				return nil
			}
		default:
			return status.Errorf(codes.InvalidArgument, "unknown rpc-behavior %q", behavior)
		}
	}
	return nil
}

func scans(text, format string, number *int) bool {
	_, err := fmt.Sscanf(text, format, number)
	return err == nil
}
