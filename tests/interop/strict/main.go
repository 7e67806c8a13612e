// Command strict is a small management server for the interoperability tests, written from the protocol document. Its flags select
// restrictions of real servers, in both variants of the protocol, over aggregated streams:
//
//	-ignore-names-in-nack  ignores the names of a request with error_detail (istiod, Consul)
//	-legacy-wildcard       treats * as an ordinary name; the wildcard is a first request without names (Consul)
//	-unknown-type URL      ends the stream with an error when this type is requested (istiod does so for Runtime)
//
// The first line on standard output is {"port":N}. Then it reads commands on standard input, one a line, and responds to each by
// one line with "done" or "failed"; lines with "event" report events of clients in between.
//
//	add NAME              a listener and a cluster of that name
//	change NAME           another value in both
//	reject NAME           the cluster becomes invalid, so that gRPC clients reject it
//	repair NAME           the end of that
//	remove NAME           both are removed
//	stop, start, restart  of the server, on the same port
//	quit
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
)

// behavior contains the restrictions of the server.
type behavior struct {
	ignoreNamesInNack bool
	legacyWildcard    bool
	unknownType       string
}

func main() {
	var left behavior
	port := flag.Int("port", 0, "port on 127.0.0.1; 0: one that is free")
	flag.BoolVar(&left.ignoreNamesInNack, "ignore-names-in-nack", false, "take no names from a request with error_detail")
	flag.BoolVar(&left.legacyWildcard, "legacy-wildcard", false, "take * for a name; a first request without names is the wildcard")
	flag.StringVar(&left.unknownType, "unknown-type", "", "end the stream with an error when this type is requested")
	flag.Parse()
	if err := run(*port, left); err != nil {
		fmt.Fprintln(os.Stderr, "strict:", err)
		os.Exit(1)
	}
}

func run(port int, left behavior) error {
	store := newStore()
	server := &server{port: port, store: store, behavior: left}
	if err := server.start(); err != nil {
		return err
	}
	defer server.stop() // at the latest when the parent process is gone
	emit(map[string]any{"port": server.port})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		line := strings.TrimSpace(commands.Text())
		if line == "" {
			continue
		}
		if err := apply(server, strings.Fields(line)); err != nil {
			emit(map[string]any{"failed": line, "reason": err.Error()})
		} else {
			emit(map[string]any{"done": line, "versions": store.versions()})
		}
		if line == "quit" {
			return nil
		}
	}
	return commands.Err()
}

// apply executes one command.
func apply(server *server, words []string) error {
	verb := words[0]
	switch {
	case verb == "stop" || verb == "quit":
		server.stop()
		return nil
	case verb == "start":
		return server.start()
	case verb == "restart":
		server.stop()
		return server.start()
	case len(words) == 2:
		return server.store.alter(verb, words[1])
	default:
		return fmt.Errorf("unknown command")
	}
}

var stdout sync.Mutex

// emit writes one JSON line; streams have goroutines of their own.
func emit(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err) // all values are strings and numbers
	}
	stdout.Lock()
	defer stdout.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// short returns the last part of a type URL: Cluster.
func short(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}
