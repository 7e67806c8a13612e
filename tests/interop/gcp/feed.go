package main

import (
	"bufio"
	"io"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
)

// feed passes the mesh to a server in another language, so that there is one source of it: its initial state, and the state
// after each command. Each time it writes messages, each after its length:
//
//   - a google.rpc.Status, the result of the command;
//   - on success, a DiscoveryResponse for each type, with all its resources and the version;
//   - an empty DiscoveryResponse.
func feed(commands io.Reader, to io.Writer) error {
	out := bufio.NewWriter(to)
	catalog := newCatalog()
	if err := writeMesh(out, catalog.update(baseMesh())); err != nil {
		return err
	}
	var broken error
	err := eachCommand(commands, func(line string) bool {
		changes, err := catalog.command(line)
		if err != nil {
			broken = write(out, &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}, &discovery.DiscoveryResponse{})
		} else {
			broken = writeMesh(out, changes)
		}
		return broken == nil
	})
	if broken != nil {
		return broken
	}
	return err
}

func writeMesh(out *bufio.Writer, changes []change) error {
	messages := []proto.Message{&status.Status{}}
	for _, now := range changes {
		response := &discovery.DiscoveryResponse{TypeUrl: now.url, VersionInfo: now.version}
		for _, one := range now.resources {
			response.Resources = append(response.Resources, packed(one))
		}
		messages = append(messages, response)
	}
	return write(out, append(messages, &discovery.DiscoveryResponse{})...)
}

func write(out *bufio.Writer, messages ...proto.Message) error {
	for _, message := range messages {
		if _, err := protodelim.MarshalTo(out, message); err != nil {
			return err
		}
	}
	return out.Flush()
}
