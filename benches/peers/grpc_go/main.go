// gRPC-Go's xDS client, measured, as the programs in Rust are: see ../client/mod.rs. It has no watch of everything (A53), so
// the mode "all" is refused.
package main

import (
	"bufio"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/internal"
	"google.golang.org/grpc/internal/xds/bootstrap"
	"google.golang.org/grpc/internal/xds/xdsclient"
	"google.golang.org/grpc/internal/xds/xdsclient/xdsresource"

	istats "google.golang.org/grpc/internal/stats"
)

const (
	clusters  = 0
	endpoints = 1
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "calls" {
		calls(os.Args[2], strings.Join(os.Args[3:], ""))
		return
	}
	if len(os.Args) != 3 {
		log.Fatal("usage: grpc-go ADDRESS COUNT, or grpc-go calls ADDRESS [CERTIFICATES]")
	}
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	p := &progress{started: time.Now().UnixNano()}
	p.missing.Store(int64(2 * count))
	go p.obey()
	// The default, 4 MiB, is less than a response has.
	internal.AddGlobalDialOptions.(func(...grpc.DialOption))(
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	config, err := bootstrap.NewConfigFromContents(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "grpc-go"}
	}`, "passthrough:///"+os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	client, _, err := xdsclient.NewPool(config).NewClient("measured", istats.NewMetricsRecorderList(nil))
	if err != nil {
		log.Fatal(err)
	}
	for number := range count {
		xdsresource.WatchCluster(client, name(number), &clusterWatcher{watcher{p, clusters, number, false}, nil})
	}
	for number := range count {
		xdsresource.WatchEndpoints(client, name(number), &endpointsWatcher{watcher{p, endpoints, number, false}, nil})
	}
	select {}
}

func name(number int) string {
	return fmt.Sprintf("outbound|8080||service-%06d.shop.svc.cluster.local", number)
}

// A watcher keeps what it sees, as a balancer would.
type watcher struct {
	progress *progress
	kind     int
	number   int
	known    bool
}

func (w *watcher) onSeen() {
	if w.known {
		w.progress.onAgain(w.kind, w.number)
		return
	}
	w.known = true
	w.progress.onFirst()
}

func (w *watcher) ResourceError(_ error, done func()) {
	w.progress.errors.Add(1)
	done()
}

func (w *watcher) AmbientError(_ error, done func()) {
	w.progress.errors.Add(1)
	done()
}

type clusterWatcher struct {
	watcher
	kept *xdsresource.ClusterUpdate
}

func (w *clusterWatcher) ResourceChanged(update *xdsresource.ClusterUpdate, done func()) {
	w.kept = update
	w.onSeen()
	done()
}

type endpointsWatcher struct {
	watcher
	kept *xdsresource.EndpointsUpdate
}

func (w *endpointsWatcher) ResourceChanged(update *xdsresource.EndpointsUpdate, done func()) {
	w.kept = update
	w.onSeen()
	done()
}

type progress struct {
	started  int64
	missing  atomic.Int64
	errors   atomic.Int64
	expected atomic.Int64 // The number of the resource that is expected to change, twice, one more for endpoints, and two.
}

func (p *progress) onFirst() {
	if p.missing.Add(-1) == 0 {
		delivered := time.Now().UnixNano()
		cpu, peak := used()
		fmt.Printf(`{"event":"delivered","started":%d,"delivered":%d,"errors":%d,"cpu":%d,"peak":%d}`+"\n",
			p.started, delivered, p.errors.Load(), cpu, peak)
	}
}

func (p *progress) onAgain(kind, number int) {
	at := time.Now().UnixNano()
	if p.expected.CompareAndSwap(expectation(kind, number), 0) {
		fmt.Printf(`{"event":"changed","at":%d}`+"\n", at)
	}
}

func (p *progress) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "expect":
			kind := clusters
			if words[1] == "endpoints" {
				kind = endpoints
			}
			number, err := strconv.Atoi(words[2])
			if err != nil {
				log.Fatal(err)
			}
			p.expected.Store(expectation(kind, number))
			fmt.Println(`{"event":"expecting"}`)
		case "report":
			cpu, peak := used()
			fmt.Printf(`{"event":"report","missing":%d,"errors":%d,"cpu":%d,"peak":%d}`+"\n",
				p.missing.Load(), p.errors.Load(), cpu, peak)
		default:
			log.Fatalf("a line that is not understood: %s", lines.Text())
		}
	}
	os.Exit(0)
}

func expectation(kind, number int) int64 {
	return int64(number*2 + kind + 2)
}

// What this process has used: time of the processor in nanoseconds, and at most so many bytes of memory.
func used() (cpu, peak int64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano(), highWater()
}

func highWater() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			return kilobytes * 1024
		}
	}
	return 0
}
