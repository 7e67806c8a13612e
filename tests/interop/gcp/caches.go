package main

import (
	"context"
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// served is one of go-control-plane's caches with the mesh in it.
type served interface {
	cache.Cache
	publish(changes []change) error
}

func newServed(kind string) (served, error) {
	switch kind {
	case "snapshot":
		return newSnapshots(false), nil
	case "ads":
		return newSnapshots(true), nil
	case "linear":
		return newLinears(), nil
	default:
		return nil, fmt.Errorf("no such cache: %q", kind)
	}
}

// snapshots holds the mesh as a snapshot, the same for all clients.
type snapshots struct{ cache.SnapshotCache }

// newSnapshots serves them in ADS mode or not. In ADS mode a state-of-the-world request with names only gets a response if it
// contains the names of all resources of the type in the snapshot.
func newSnapshots(ads bool) snapshots {
	return snapshots{cache.NewSnapshotCacheWithHeartbeating(context.Background(), ads, everyNode{}, nil, heartbeat)}
}

func (s snapshots) publish(changes []change) error {
	snapshot := &cache.Snapshot{}
	for _, now := range changes {
		var resources []types.ResourceWithTTL
		for _, one := range now.resources {
			resource := types.ResourceWithTTL{Resource: one}
			if ttl := now.ttls[cache.GetResourceName(one)]; ttl > 0 {
				resource.TTL = &ttl
			}
			resources = append(resources, resource)
		}
		snapshot.Resources[cache.GetResponseType(now.url)] = cache.NewResourcesWithTTL(now.version, resources)
	}
	return s.SetSnapshot(context.Background(), meshKey, snapshot)
}

// everyNode selects the same mesh for all clients.
type everyNode struct{}

func (everyNode) ID(*core.Node) string { return meshKey }

const meshKey = "mesh"

// heartbeat is the interval of heartbeats of resources with a time to live.
const heartbeat = 200 * time.Millisecond

// linears holds each type in a collection of its own, which counts its updates.
type linears struct {
	*cache.MuxCache
	byType map[string]*cache.LinearCache
}

func newLinears() linears {
	made := linears{
		MuxCache: &cache.MuxCache{
			Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
			ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
			Caches:        map[string]cache.Cache{},
		},
		byType: map[string]*cache.LinearCache{},
	}
	for _, url := range typeOrder {
		made.byType[url] = cache.NewLinearCache(url)
		made.Caches[url] = made.byType[url]
	}
	return made
}

func (l linears) publish(changes []change) error {
	for _, now := range changes {
		if !now.isNew {
			continue
		}
		if err := l.byType[now.url].UpdateResources(now.updated, now.removed); err != nil {
			return err
		}
	}
	return nil
}
