// Command backend is a gRPC server for the interoperability tests of the channel, on grpc-go. The servers of ../java and ../python
// have the same interface.
//
// Usage:
//
//	backend NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]
//
// It serves on 127.0.0.1; with port 0, or without one, on one that is free. With the PEM files of a certificate and its key it uses TLS, and
// with those of an authority it requires client certificates of that. The header x-client then has their subject alternative names of the
// types URI, DNS and email, sorted and joined by commas.
//
// The first line on standard output is {"address":"127.0.0.1:PORT"}. Then it reads commands on standard input, one a line, and
// responds to each by one line with "done" or "failed". The end of the input ends it.
//
//	counts                the "counts" of calls by method
//	stop                  stops gracefully; the event "stopped" follows when the last call has ended
//	quit
//
// The methods of the service interop.Backend have bytes as messages:
//
//	Echo                  unary: sends the message back, and the metadata x-echo and x-echo-bin as headers
//	Collect               client stream: sends "MESSAGES BYTES" when the stream of the client ends
//	Expand                server stream: for the message "MESSAGES BYTES", sends as many messages of as many bytes
//	Chat                  bidirectional stream: sends each message back
//	Hold                  unary: responds after as many milliseconds as its message specifies
//	Fail                  unary: for the message "CODE TEXT", fails with this status and the trailers x-trailer and x-trailer-bin
//
// This one has UnaryCall and EmptyCall of grpc.testing.TestService, too: the header hostname is the name of the server, and the
// metadata rpc-behavior is that of grpc/grpc's doc/xds-test-descriptions.md.
//
// Each response of interop.Backend has the header x-backend with the name of the server, and is compressed if the metadata has x-compress. Calls of
// Chat and Hold are reported by lines with the "event" began or cancelled, and the "method".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

func main() {
	arguments := os.Args[1:]
	if len(arguments) < 1 || len(arguments) == 3 || len(arguments) > 5 {
		fmt.Fprintln(os.Stderr, "usage: backend NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]")
		os.Exit(2)
	}
	name, port, files := arguments[0], "0", []string(nil)
	if len(arguments) > 1 {
		port, files = arguments[1], arguments[2:]
	}
	if err := run(name, port, files); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
}

func run(name, port string, files []string) error {
	credentials, err := serverCredentials(files)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	backend := &backend{name: name, counts: map[string]int{}}
	server := grpc.NewServer(
		grpc.ForceServerCodec(rawCodec{}), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.Creds(credentials),
	)
	server.RegisterService(backend.service(), backend)
	server.RegisterService(backend.testService(), backend)
	go func() {
		if err := server.Serve(listener); err != nil {
			emit(map[string]any{"event": "broken", "reason": err.Error()})
		}
	}()
	defer server.Stop() // at the latest when the parent process is gone
	emit(map[string]any{"address": listener.Addr().String()})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch line := strings.TrimSpace(commands.Text()); line {
		case "":
		case "counts":
			emit(map[string]any{"done": line, "counts": backend.copyCounts()})
		case "stop":
			go func() {
				server.GracefulStop()
				emit(map[string]any{"event": "stopped"})
			}()
			emit(map[string]any{"done": line})
		case "quit":
			emit(map[string]any{"done": line})
			return nil
		default:
			emit(map[string]any{"failed": line, "reason": "unknown command"})
		}
	}
	return commands.Err()
}

// backend is the state of the server: its name, and the calls that began, by method.
type backend struct {
	name   string
	mutex  sync.Mutex
	counts map[string]int
}

func (b *backend) count(method string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.counts[method]++
}

func (b *backend) copyCounts() map[string]int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return maps.Clone(b.counts)
}

// rawCodec has bytes as messages.
type rawCodec struct{}

func (rawCodec) Marshal(message any) ([]byte, error) {
	return message.([]byte), nil
}

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (rawCodec) Name() string { return "proto" }

const maxMessage = 64 << 20

var stdout sync.Mutex

// emit writes one JSON line; calls have goroutines of their own.
func emit(fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err) // all values are strings and numbers
	}
	stdout.Lock()
	defer stdout.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
