//go:build tools

// Package tools requires the client of gRPC's xDS interoperability tests, so that go.mod and go.sum have what it is built of.
package tools

import _ "google.golang.org/grpc/interop/xds/client"
