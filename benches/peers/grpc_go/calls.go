package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/xds"
)

// calls makes calls through gRPC-Go's xDS channel, as the program in Rust does: see ../calls/main.rs. Certificates are a folder, or
// none.
func calls(controlPlane, certificates string) {
	config := fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"certificate_providers": {"files": {"plugin_name": "file_watcher", "config": {
			"ca_certificate_file": %q, "certificate_file": %q, "private_key_file": %q}}},
		"node": {"id": "grpc-go"}
	}`, "passthrough:///"+controlPlane,
		certificates+"/ca.pem", certificates+"/cert.pem", certificates+"/key.pem")
	channels := map[string]*grpc.ClientConn{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 2 && words[0] == "handshakes" {
			handshakes(config, number(words[1]))
			continue
		}
		if len(words) != 5 || words[0] != "round" {
			log.Fatalf("a line that is not understood: %s", lines.Text())
		}
		begin := time.Now()
		before, _ := used()
		if channels[words[1]] == nil {
			channels[words[1]] = dial(config, "xds:///"+words[1])
		}
		r := &round{channel: channels[words[1]], message: make([]byte, number(words[2]))}
		r.left.Store(int64(number(words[4])))
		r.run(number(words[3]))
		wall := time.Since(begin)
		after, _ := used()
		r.report(wall, after-before)
	}
}

// handshakes makes channels, one after the other, each for one call.
func handshakes(config []byte, count int) {
	begin := time.Now()
	before, _ := used()
	all := &round{message: make([]byte, 100)}
	for range count {
		all.channel = dial(config, "xds:///one")
		all.left.Store(1)
		all.run(1)
		all.channel.Close()
	}
	wall := time.Since(begin)
	after, _ := used()
	all.report(wall, after-before)
}

func dial(config []byte, target string) *grpc.ClientConn {
	resolver, err := xds.NewXDSResolverWithConfigForTesting(config)
	if err != nil {
		log.Fatal(err)
	}
	security, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		log.Fatal(err)
	}
	channel, err := grpc.NewClient(target, grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		log.Fatal(err)
	}
	return channel
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return number
}

// A round of calls.
type round struct {
	channel *grpc.ClientConn
	message []byte
	left    atomic.Int64

	mu        sync.Mutex
	durations []time.Duration
	failed    int
	err       error
}

// run makes the calls, so many at a time.
func (r *round) run(inFlight int) {
	var callers sync.WaitGroup
	for range inFlight {
		callers.Go(func() {
			var durations []time.Duration
			for r.left.Add(-1) >= 0 {
				begin := time.Now()
				var size int
				err := r.channel.Invoke(context.Background(), "/bench.Echo/Echo", r.message, &size)
				if err == nil && size != len(r.message) {
					err = fmt.Errorf("a response of %d bytes", size)
				}
				if err != nil {
					r.fail(err)
				}
				durations = append(durations, time.Since(begin))
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.durations = append(r.durations, durations...)
		})
	}
	callers.Wait()
}

func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.err = err
}

func (r *round) report(wall time.Duration, cpu int64) {
	slices.Sort(r.durations)
	quantile := func(quantile float64) int64 {
		place := int(float64(len(r.durations)) * quantile)
		return r.durations[min(place, len(r.durations)-1)].Nanoseconds()
	}
	text := ""
	if r.err != nil {
		text = r.err.Error()
	}
	line, err := json.Marshal(map[string]any{
		"event": "round", "calls": len(r.durations), "failed": r.failed, "error": text,
		"wall": wall.Nanoseconds(), "cpu": cpu, "p50": quantile(0.5), "p99": quantile(0.99),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// rawCodec takes messages that are bytes, without a copy, and gives their lengths.
type rawCodec struct{}

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, size any) error {
	*size.(*int) = data.Len()
	return nil
}

func (rawCodec) Name() string {
	return "raw"
}
