// Command rings prints what grpc-go's ring_hash picks, for the test of src/balance/policies/ring_hash/picker/tests/grpc_go.rs.
//
// From the project's root:
//
//	(cd tests/interop/rings && go run .) > src/balance/policies/ring_hash/picker/tests/grpc_go.txt
//
// For each set of endpoints there are the lines
//
//	ring MIN_SIZE MAX_SIZE
//	endpoint WEIGHT HASH_KEY ADDRESS...       the key is - if there is none
//	picks N...                                the places of the endpoints for the hashes XXH64("0"), XXH64("1"), ...
//
// The policy itself is asked, over connections that succeed at once. The name of the module is one below grpc-go's, since the
// weights of endpoints and the hashes of requests are internal to it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"

	xxhash "github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/ringhash"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/internal/balancer/weight"
	iringhash "google.golang.org/grpc/internal/ringhash"
	"google.golang.org/grpc/internal/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/ringhash"
)

const hashes = 200

// endpoint is one of a set.
type endpoint struct {
	weight    uint32
	key       string
	addresses []string
}

// set is a configuration of the policy.
type set struct {
	min, max  uint64
	endpoints []endpoint
}

// conn is a ClientConn whose subchannels connect at once.
type conn struct {
	balancer.ClientConn
	mu      sync.Mutex
	picker  balancer.Picker
	changed chan struct{}
}

type subConn struct {
	balancer.SubConn
	address string
	listen  func(balancer.SubConnState)
}

func (c *conn) NewSubConn(addresses []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &subConn{address: addresses[0].Addr, listen: opts.StateListener}, nil
}

func (c *conn) UpdateState(state balancer.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.picker = state.Picker
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *conn) ResolveNow(resolver.ResolveNowOptions) {}

func (c *conn) Target() string { return "rings" }

func (c *conn) MetricsRecorder() estats.MetricsRecorder { return stats.NewMetricsRecorderList(nil) }

func (s *subConn) Connect() {
	go func() {
		s.listen(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		s.listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	}()
}

func (s *subConn) Shutdown() {}

func (s *subConn) RegisterHealthListener(listen func(balancer.SubConnState)) {
	go listen(balancer.SubConnState{ConnectivityState: connectivity.Ready})
}

// pick returns the address for a hash.
func (c *conn) pick(hash uint64) string {
	ctx := iringhash.SetXDSRequestHash(context.Background(), hash)
	for {
		c.mu.Lock()
		picker, changed := c.picker, c.changed
		c.mu.Unlock()
		result, err := picker.Pick(balancer.PickInfo{FullMethodName: "/", Ctx: ctx})
		if err == nil {
			return result.SubConn.(*subConn).address
		}
		if !errors.Is(err, balancer.ErrNoSubConnAvailable) {
			log.Fatal(err)
		}
		<-changed
	}
}

// picks are the places of the endpoints for all hashes.
func (s set) picks() []string {
	c := &conn{changed: make(chan struct{})}
	builder := balancer.Get("ring_hash_experimental")
	policy := builder.Build(c, balancer.BuildOptions{})
	defer policy.Close()
	config, err := builder.(balancer.ConfigParser).ParseConfig(
		json.RawMessage(fmt.Sprintf(`{"minRingSize": %d, "maxRingSize": %d}`, s.min, s.max)))
	if err != nil {
		log.Fatal(err)
	}
	places := map[string]string{}
	var state resolver.State
	for place, it := range s.endpoints {
		var to resolver.Endpoint
		for _, address := range it.addresses {
			to.Addresses = append(to.Addresses, resolver.Address{Addr: address})
			places[address] = strconv.Itoa(place)
		}
		to = weight.Set(to, weight.EndpointInfo{Weight: it.weight})
		if it.key != "" {
			to = ringhash.SetHashKey(to, it.key)
		}
		state.Endpoints = append(state.Endpoints, to)
	}
	if err := policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: config}); err != nil {
		log.Fatal(err)
	}
	var picks []string
	for number := range hashes {
		picks = append(picks, places[c.pick(xxhash.Sum64String(strconv.Itoa(number)))])
	}
	return picks
}

// sets are those that the test compares.
func sets() []set {
	random := rand.New(rand.NewSource(1))
	of := func(count int, weight func(int) uint32) []endpoint {
		var all []endpoint
		for place := range count {
			address := fmt.Sprintf("10.%d.%d.%d:%d", random.Intn(256), place/250, place%250, 1+random.Intn(65535))
			all = append(all, endpoint{weight(place), "", []string{address}})
		}
		return all
	}
	one := func(int) uint32 { return 1 }
	some := func(int) uint32 { return uint32(1 + random.Intn(100)) }
	// The sum of the weights of xDS is at most 2³¹, and grpc-go adds them up in 32 bits.
	shares := func(int) uint32 { return uint32(1 + random.Intn(1<<25)) }
	ipv6 := func(count int, weight func(int) uint32) []endpoint {
		all := of(count, weight)
		for place := range all {
			all[place].addresses = []string{fmt.Sprintf("[2001:db8::%x]:443", 1+place*random.Intn(4096)+place)}
		}
		return all
	}
	keyed := func(count int, weight func(int) uint32) []endpoint {
		all := of(count, weight)
		for place := range all {
			if place%2 == 0 {
				all[place].key = fmt.Sprintf("shard-%d", place)
			}
		}
		return all
	}
	several := func(count int, weight func(int) uint32) []endpoint {
		all := of(count, weight)
		for place := range all {
			all[place].addresses = append(all[place].addresses, fmt.Sprintf("[2001:db8:1::%x]:80", place))
		}
		return all
	}
	return []set{
		{1024, 4096, of(1, one)},
		{1024, 4096, of(2, one)},
		{1024, 4096, of(3, one)},
		{1024, 4096, of(10, one)},
		{1024, 4096, of(100, one)},
		{1, 4096, of(10, one)},
		{7, 7, of(10, one)},
		{3, 1000, of(5, some)},
		{1024, 4096, of(10, some)},
		{4096, 4096, of(10, some)},
		{1024, 1024, of(30, some)},
		{1024, 8388608, of(10, shares)},
		{100, 4096, of(4, func(place int) uint32 { return []uint32{3, 3, 4, 1}[place] })},
		{1024, 4096, of(50, shares)},
		{1024, 4096, ipv6(10, one)},
		{100, 4096, ipv6(20, some)},
		{1024, 4096, keyed(10, one)},
		{64, 128, keyed(20, some)},
		{1024, 4096, several(10, one)},
		{500, 4096, several(12, shares)},
	}
}

func main() {
	out := os.Stdout
	for _, it := range sets() {
		fmt.Fprintln(out, "ring", it.min, it.max)
		for _, endpoint := range it.endpoints {
			key := endpoint.key
			if key == "" {
				key = "-"
			}
			fmt.Fprintln(out, "endpoint", endpoint.weight, key, strings.Join(endpoint.addresses, " "))
		}
		fmt.Fprintln(out, "picks", strings.Join(it.picks(), " "))
	}
}
