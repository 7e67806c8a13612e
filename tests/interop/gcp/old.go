//go:build gcp_0_12

package main

import (
	"errors"

	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
)

// What go-control-plane 0.12.0 has no messages for, and what it is not run for: see v0_12/go.mod.

func askForStatus(string) error {
	return errors.New("this build has no -csds")
}

// loads is a service of load reports that nobody calls.
type loads struct {
	lrs.UnimplementedLoadReportingServiceServer
}

func newLoads() *loads {
	return &loads{}
}

func (*loads) ask(uint32, []string) {}
