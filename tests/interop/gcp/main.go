// Command gcp is a management server for the interoperability tests: go-control-plane around the mesh of mesh.go.
//
// Usage: gcp [-port N], or gcp -csds ADDRESS, which asks a client for its status, writes the answer as JSON, and ends
//
// The first line on standard output is {"port":N}. Then it takes commands on standard input, one a line, and answers each
// by one line with "done" or "failed" when the mesh is served; lines with "event" tell what the clients do meanwhile.
//
//	set base              the mesh as it was at the start
//	update canary W1 W2   other weights for the stable and the canary clusters
//	canary SERVICE W      W of 100 requests to the canary cluster of one service, the others to the stable one
//	drain ADDRESS         this endpoint (10.1.0.1:8080) is draining
//	fail CLUSTER          all endpoints of the cluster are unhealthy
//	heal CLUSTER          the end of that
//	fallback HOST         another host for the cluster orders-fallback
//	rename CLUSTER NAME   the cluster, its endpoints and the routes to it go by another name, all at once
//	lose SERVICE          the routes of the service lead to the cluster SERVICE-lost, which there is not
//	find SERVICE          the end of that
//	invalid               a cluster that gRPC clients must reject, and a good change beside it
//	valid                 the end of that
//	clusters N            N more clusters: bulk-00000, bulk-00001 ...
//	remove SERVICE        the service with all that belongs to it
//	stop, start, restart  of the server, on the same port
//	quit
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0: one that is free")
	csds := flag.String("csds", "", "address of a client status service to ask, instead of serving")
	flag.Parse()
	act := func() error { return run(*port) }
	if *csds != "" {
		act = func() error { return askForStatus(*csds) }
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, "gcp:", err)
		os.Exit(1)
	}
}

func run(port int) error {
	server, err := newServer(port)
	if err != nil {
		return err
	}
	mesh := baseMesh()
	if err := server.publish(mesh); err != nil {
		return err
	}
	if err := server.start(); err != nil {
		return err
	}
	emit(map[string]any{"port": server.port})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		line := strings.TrimSpace(commands.Text())
		if line == "" {
			continue
		}
		if line == "quit" {
			server.stop()
			emit(map[string]any{"done": line})
			return nil
		}
		if next, err := apply(server, mesh, strings.Fields(line)); err != nil {
			emit(map[string]any{"failed": line, "reason": err.Error()})
		} else {
			mesh = next
			emit(map[string]any{"done": line, "versions": server.versionsByType()})
		}
	}
	server.stop() // whoever started us is gone
	return commands.Err()
}

// apply carries out one command and returns the mesh after it.
func apply(server *server, mesh *mesh, words []string) (*mesh, error) {
	switch args := words[1:]; words[0] {
	case "stop":
		server.stop()
		return mesh, nil
	case "start":
		return mesh, server.start()
	case "restart":
		server.stop()
		return mesh, server.start()
	case "set":
		if len(args) != 1 || args[0] != "base" {
			return nil, fmt.Errorf("only \"set base\" is known")
		}
		mesh = baseMesh()
	default:
		if err := change(mesh, words[0], args); err != nil {
			return nil, err
		}
	}
	return mesh, server.publish(mesh)
}

func change(mesh *mesh, verb string, args []string) error {
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
	case "lose", "find":
		if len(args) != 1 {
			return fmt.Errorf("%s SERVICE", verb)
		}
		return mesh.setLost(args[0], verb == "lose")
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
