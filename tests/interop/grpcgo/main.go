// A gRPC client in Go that resolves an xds target and serves its client status (CSDS), until its standard input is closed. It
// writes the address of the service to its standard output.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds/csds"

	_ "google.golang.org/grpc/xds"
)

func main() {
	target := flag.String("target", "", "the target to resolve, such as xds:///cart; the bootstrap is that of GRPC_XDS_BOOTSTRAP")
	flag.Parse()
	channel, err := grpc.NewClient(*target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatalf("no channel to %s: %v", *target, err)
	}
	defer channel.Close()
	channel.Connect()

	service, err := csds.NewClientStatusDiscoveryServer()
	if err != nil {
		log.Fatalf("no client status service: %v", err)
	}
	defer service.Close()
	server := grpc.NewServer()
	statuspb.RegisterClientStatusDiscoveryServiceServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatalf("no free port: %v", err)
	}
	fmt.Printf("{\"address\": %q}\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatalf("cannot serve: %v", err)
	}
}
