//go:build !gcp_0_12

package main

import (
	"context"
	"os"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

// askForStatus requests the client status of a process, as grpcdebug does, and writes the response as one line of JSON. The types
// of the resources are linked in, so they are decoded.
func askForStatus(address string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := statuspb.NewClientStatusDiscoveryServiceClient(connection)
	response, err := client.FetchClientStatus(ctx, &statuspb.ClientStatusRequest{})
	if err != nil {
		return err
	}
	line, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(line, '\n'))
	return err
}
