//go:build !gcp_0_12

package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// loads is the service of load reports. It sends its first response when there is a command for it, and one more after each
// further command.
type loads struct {
	lrs.UnimplementedLoadReportingServiceServer

	lock    sync.Mutex
	streams int64
	asked   *lrs.LoadStatsResponse
	changed chan struct{} // closed by the next command
}

func newLoads() *loads {
	return &loads{changed: make(chan struct{})}
}

// ask has all clients report these clusters, or all if there are none.
func (l *loads) ask(milliseconds uint32, clusters []string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.asked = &lrs.LoadStatsResponse{
		Clusters:              clusters,
		SendAllClusters:       len(clusters) == 0,
		LoadReportingInterval: durationpb.New(time.Duration(milliseconds) * time.Millisecond),
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *loads) open() int64 {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.streams++
	return l.streams
}

func (l *loads) current() (*lrs.LoadStatsResponse, chan struct{}) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.asked, l.changed
}

// StreamLoadStats serves one stream: it responds after the first request, which has the node.
func (l *loads) StreamLoadStats(stream lrs.LoadReportingService_StreamLoadStatsServer) error {
	number := l.open()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetNode().GetId() == "" {
		return fmt.Errorf("the first request has no node")
	}
	reported(number, first)
	defer emit(map[string]any{"event": "loads-closed", "stream": number})
	end := make(chan error, 1)
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				end <- err
				return
			}
			reported(number, request)
		}
	}()
	for {
		asked, changed := l.current()
		if asked != nil {
			if err := stream.Send(asked); err != nil {
				return err
			}
		}
		select {
		case err := <-end:
			if errors.Is(err, io.EOF) {
				return nil // the client has ended it
			}
			return err
		case <-changed:
		}
	}
}

// reported reports a request.
func reported(stream int64, request *lrs.LoadStatsRequest) {
	clusters := []any{}
	for _, one := range request.GetClusterStats() {
		clusters = append(clusters, clusterLoad(one))
	}
	emit(map[string]any{
		"event": "loads", "stream": stream, "node": request.GetNode().GetId(), "features": request.GetNode().GetClientFeatures(),
		"bytes": proto.Size(request), "clusters": clusters,
	})
}

func clusterLoad(stats *endpoint.ClusterStats) map[string]any {
	dropped := map[string]uint64{}
	for _, one := range stats.GetDroppedRequests() {
		dropped[one.GetCategory()] += one.GetDroppedCount()
	}
	localities := []any{}
	for _, one := range stats.GetUpstreamLocalityStats() {
		localities = append(localities, localityLoad(one))
	}
	return map[string]any{
		"cluster": stats.GetClusterName(), "service": stats.GetClusterServiceName(),
		"milliseconds": stats.GetLoadReportInterval().AsDuration().Milliseconds(),
		"dropped":      stats.GetTotalDroppedRequests(), "dropped_by_category": dropped, "localities": localities,
	}
}

func localityLoad(stats *endpoint.UpstreamLocalityStats) map[string]any {
	metrics := map[string]any{}
	for _, one := range stats.GetLoadMetricStats() {
		metrics[one.GetMetricName()] = []any{one.GetNumRequestsFinishedWithMetric(), one.GetTotalMetricValue()}
	}
	for name, one := range map[string]*endpoint.UnnamedEndpointLoadMetricStats{
		"cpu_utilization": stats.GetCpuUtilization(), "mem_utilization": stats.GetMemUtilization(),
		"application_utilization": stats.GetApplicationUtilization(),
	} {
		if one != nil {
			metrics[name] = []any{one.GetNumRequestsFinishedWithMetric(), one.GetTotalMetricValue()}
		}
	}
	return map[string]any{
		"locality": place(stats.GetLocality()), "issued": stats.GetTotalIssuedRequests(),
		"successful": stats.GetTotalSuccessfulRequests(), "failed": stats.GetTotalErrorRequests(),
		"in_progress": stats.GetTotalRequestsInProgress(), "metrics": metrics, "endpoints": len(stats.GetUpstreamEndpointStats()),
	}
}

func place(locality *core.Locality) string {
	return locality.GetRegion() + "/" + locality.GetZone() + "/" + locality.GetSubZone()
}
