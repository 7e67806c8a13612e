// Command gcp is a management server for the interoperability tests: go-control-plane around the mesh of mesh.go.
//
// Usage:
//
//	gcp [-port N] [-gateway N] [-cache snapshot|ads|linear]
//	                    serves the mesh in both variants of the protocol, aggregated and with a stream for each type, and
//	                    over REST behind the gateway, which a linear cache does not support
//	gcp -feed           passes the mesh to a server in another language, see feed.go
//	gcp -csds ADDRESS   requests the status of a client, writes the response as JSON, and ends
//
// The first line on standard output is {"port":N,"gateway":N}. Then it reads commands on standard input, one a line, and responds to
// each by one line with "done" or "failed" when the mesh is served; lines with "event" report events of clients in between.
//
//	set base              the initial mesh
//	update canary W1 W2   other weights for the stable and the canary clusters
//	canary SERVICE W      W of 100 requests to the canary cluster of one service, the others to the stable one
//	drain ADDRESS         this endpoint (10.1.0.1:8080) is draining
//	fail CLUSTER          all endpoints of the cluster are unhealthy
//	heal CLUSTER          the end of that
//	endpoints CLUSTER ADDRESS... [/ ADDRESS...]
//	                      the endpoints of the cluster, by priority, in one locality each
//	limit SERVICE N       the maximum stream duration of the service's routes, in milliseconds; 0: none
//	secure CLUSTER [JSON] the cluster has TLS by this UpstreamTlsContext, without spaces; or the end of that
//	fallback HOST         another host for the cluster orders-fallback
//	rename CLUSTER NAME   renames the cluster, its endpoints and the routes to it, all at once
//	reroute SERVICE NAME  renames its routes, and the reference in its listener
//	ttl CLUSTER N         the cluster and its endpoints live for N milliseconds unless they are confirmed, which a snapshot
//	                      does five times a second
//	lose SERVICE          the routes of the service lead to the missing cluster SERVICE-lost
//	find SERVICE          the end of that
//	report CLUSTER        clients report the load of the cluster to this server
//	conceal CLUSTER       the end of that
//	loads N [CLUSTER...]  requests load reports of these clusters, or of all, every N milliseconds
//	invalid               a cluster that gRPC clients must reject, and a valid change in addition
//	valid                 the end of that
//	clusters N            N more clusters: bulk-00000, bulk-00001 ...
//	remove SERVICE        removes the service with all of its resources
//	stop, start, restart  of the server, on the same ports
//	quit
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0: one that is free")
	gateway := flag.Int("gateway", 0, "port of the HTTP gateway on 127.0.0.1; 0: one that is free")
	kind := flag.String("cache", "snapshot", "the cache to serve from: snapshot, ads (a snapshot in ADS mode), or linear")
	feeds := flag.Bool("feed", false, "write the mesh to standard output, instead of serving")
	csds := flag.String("csds", "", "address of a client status service to ask, instead of serving")
	flag.Parse()
	act := func() error { return run(*port, *gateway, *kind) }
	switch {
	case *feeds:
		act = func() error { return feed(os.Stdin, os.Stdout) }
	case *csds != "":
		act = func() error { return askForStatus(*csds) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, "gcp:", err)
		os.Exit(1)
	}
}

func run(port, gateway int, kind string) error {
	served, err := newServed(kind)
	if err != nil {
		return err
	}
	server, err := newServer(port, gateway, served)
	if err != nil {
		return err
	}
	catalog := newCatalog()
	if err := served.publish(catalog.update(baseMesh())); err != nil {
		return err
	}
	if err := server.start(); err != nil {
		return err
	}
	defer server.stop() // at the latest when the parent process is gone
	emit(map[string]any{"port": server.port, "gateway": server.gateway})
	return eachCommand(os.Stdin, func(line string) bool {
		if line == "quit" {
			server.stop()
			emit(map[string]any{"done": line})
			return false
		}
		if err := apply(server, catalog, line); err != nil {
			emit(map[string]any{"failed": line, "reason": err.Error()})
		} else {
			emit(map[string]any{"done": line, "versions": catalog.versions()})
		}
		return true
	})
}

// eachCommand reads lines until the function returns false.
func eachCommand(from io.Reader, do func(line string) bool) error {
	commands := bufio.NewScanner(from)
	for commands.Scan() {
		if line := strings.TrimSpace(commands.Text()); line != "" && !do(line) {
			return nil
		}
	}
	return commands.Err()
}

// apply executes one command.
func apply(server *server, catalog *catalog, line string) error {
	switch line {
	case "stop":
		server.stop()
		return nil
	case "start":
		return server.start()
	case "restart":
		server.stop()
		return server.start()
	}
	if words := strings.Fields(line); words[0] == "loads" {
		return askForLoads(server.loads, words[1:])
	}
	changes, err := catalog.command(line)
	if err != nil {
		return err
	}
	return server.cache.publish(changes)
}

func askForLoads(loads *loads, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("loads N [CLUSTER...]")
	}
	interval, err := numbers(args[:1])
	if err != nil {
		return err
	}
	loads.ask(interval[0], args[1:])
	return nil
}

func alter(mesh *mesh, verb string, args []string) error {
	switch verb {
	case "update":
		if len(args) != 3 || args[0] != "canary" {
			return fmt.Errorf("update canary W1 W2")
		}
		weights, err := numbers(args[1:])
		if err != nil {
			return err
		}
		mesh.weights, mesh.canary = [2]uint32{weights[0], weights[1]}, map[string]uint32{}
	case "canary":
		if len(args) != 2 {
			return fmt.Errorf("canary SERVICE W")
		}
		weight, err := numbers(args[1:])
		if err != nil {
			return err
		}
		return mesh.weigh(args[0], weight[0])
	case "drain":
		if len(args) != 1 {
			return fmt.Errorf("drain ADDRESS")
		}
		return mesh.drain(args[0])
	case "fail", "heal":
		if len(args) != 1 {
			return fmt.Errorf("%s CLUSTER", verb)
		}
		return mesh.setFailing(args[0], verb == "fail")
	case "endpoints":
		if len(args) == 0 {
			return fmt.Errorf("endpoints CLUSTER ADDRESS... [/ ADDRESS...]")
		}
		return mesh.locate(args[0], args[1:])
	case "limit":
		if len(args) != 2 {
			return fmt.Errorf("limit SERVICE N")
		}
		limit, err := numbers(args[1:])
		if err != nil {
			return err
		}
		return mesh.limit(args[0], time.Duration(limit[0])*time.Millisecond)
	case "secure":
		if len(args) != 1 && len(args) != 2 {
			return fmt.Errorf("secure CLUSTER [JSON]")
		}
		return mesh.secure(args[0], strings.Join(args[1:], ""))
	case "fallback":
		if len(args) != 1 {
			return fmt.Errorf("fallback HOST")
		}
		mesh.fallback = args[0]
	case "rename":
		if len(args) != 2 {
			return fmt.Errorf("rename CLUSTER NAME")
		}
		return mesh.rename(args[0], args[1])
	case "reroute":
		if len(args) != 2 {
			return fmt.Errorf("reroute SERVICE NAME")
		}
		return mesh.reroute(args[0], args[1])
	case "ttl":
		if len(args) != 2 {
			return fmt.Errorf("ttl CLUSTER N")
		}
		lifetime, err := numbers(args[1:])
		if err != nil {
			return err
		}
		return mesh.expire(args[0], time.Duration(lifetime[0])*time.Millisecond)
	case "lose", "find":
		if len(args) != 1 {
			return fmt.Errorf("%s SERVICE", verb)
		}
		return mesh.setLost(args[0], verb == "lose")
	case "report", "conceal":
		if len(args) != 1 {
			return fmt.Errorf("%s CLUSTER", verb)
		}
		return mesh.setReporting(args[0], verb == "report")
	case "invalid", "valid":
		mesh.invalid = verb == "invalid"
	case "clusters":
		count, err := numbers(args)
		if err != nil || len(count) != 1 {
			return fmt.Errorf("clusters N")
		}
		mesh.bulk = int(count[0])
	case "remove":
		if len(args) != 1 {
			return fmt.Errorf("remove SERVICE")
		}
		return mesh.remove(args[0])
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func numbers(words []string) ([]uint32, error) {
	var all []uint32
	for _, word := range words {
		number, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, err
		}
		all = append(all, uint32(number))
	}
	return all, nil
}

var stdout sync.Mutex

// emit writes one JSON line; the server's callbacks come from many goroutines.
func emit(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err) // all values are strings and numbers
	}
	stdout.Lock()
	defer stdout.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
