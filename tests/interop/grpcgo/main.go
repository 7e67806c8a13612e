// Command grpcgo is the client of gRPC's xDS interoperability tests on grpc-go, for comparison with ../../../examples/interop_client,
// which has the same flags and services. Beside these it serves its client status (CSDS).
//
// The first line on standard output is {"stats_port":PORT}.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"strings"
	"time"

	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/rls"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/grpc/xds/csds"
)

var (
	server        = flag.String("server", "", "the target, such as xds:///cart; the bootstrap is that of GRPC_XDS_BOOTSTRAP")
	numChannels   = flag.Int("num_channels", 1, "channels to the target")
	qps           = flag.Int("qps", 1, "calls a second on each channel, of each method")
	methods       = flag.String("rpc", "UnaryCall", "UnaryCall, EmptyCall, or both with a comma")
	pairs         = flag.String("metadata", "", "METHOD:KEY:VALUE,...")
	timeout       = flag.Int("rpc_timeout_sec", 20, "the deadline of a call in seconds")
	statsPort     = flag.Int("stats_port", 8081, "the port of the services; 0 takes a free one")
	failOnFailure = flag.Bool("fail_on_failed_rpcs", false, "end with exit code 1 if a call fails after the first success")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	settings, err := commandLine()
	if err != nil {
		return err
	}
	client := &client{stats: newStats(), settings: settings}
	for range *numChannels {
		channel, err := grpc.NewClient(*server, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("no channel to %s: %w", *server, err)
		}
		defer channel.Close()
		channel.Connect()
		client.channels = append(client.channels, grpc_testing.NewTestServiceClient(channel))
	}
	status, err := csds.NewClientStatusDiscoveryServer()
	if err != nil {
		return fmt.Errorf("no client status service: %w", err)
	}
	defer status.Close()
	services := grpc.NewServer()
	statuspb.RegisterClientStatusDiscoveryServiceServer(services, status)
	grpc_testing.RegisterLoadBalancerStatsServiceServer(services, client)
	grpc_testing.RegisterXdsUpdateClientConfigureServiceServer(services, client)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *statsPort))
	if err != nil {
		return fmt.Errorf("no port: %w", err)
	}
	fmt.Printf("{\"stats_port\":%d}\n", listener.Addr().(*net.TCPAddr).Port)
	go func() {
		if err := services.Serve(listener); err != nil {
			log.Fatalf("cannot serve: %v", err)
		}
	}()
	return client.run()
}

// commandLine returns the settings of the first calls.
func commandLine() (settings []setting, err error) {
	metadataOf := map[string]metadata.MD{}
	for _, entry := range strings.FieldsFunc(*pairs, isComma) {
		parts := strings.SplitN(entry, ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("-metadata: %s is not METHOD:KEY:VALUE", entry)
		}
		metadataOf[parts[0]] = metadata.Join(metadataOf[parts[0]], metadata.Pairs(parts[1], parts[2]))
	}
	for _, method := range strings.FieldsFunc(*methods, isComma) {
		kind, isKnown := map[string]rpcType{
			"UnaryCall": grpc_testing.ClientConfigureRequest_UNARY_CALL,
			"EmptyCall": grpc_testing.ClientConfigureRequest_EMPTY_CALL,
		}[method]
		if !isKnown {
			return nil, fmt.Errorf("%s is neither UnaryCall nor EmptyCall", method)
		}
		settings = append(settings, setting{kind, metadataOf[method], seconds(*timeout)})
	}
	return settings, nil
}

func isComma(r rune) bool { return r == ',' }

func seconds(number int) time.Duration { return time.Duration(number) * time.Second }
