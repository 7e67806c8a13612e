package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// catalog is the mesh with its versions. The version of a type grows only when a resource of the type changes.
type catalog struct {
	mesh  *mesh
	types map[string]*typeState // by type URL
}

type typeState struct {
	version int
	bodies  map[string][]byte // by name, with the time to live
}

// change is the current state of a type, and its changes.
type change struct {
	url       string
	version   string
	resources []types.Resource
	ttls      map[string]time.Duration // by name, for those that expire
	updated   map[string]types.Resource
	removed   []string
	isNew     bool // there is a new version
}

// Parents are sent after their children.
var typeOrder = []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}

func newCatalog() *catalog {
	made := &catalog{types: map[string]*typeState{}}
	for _, url := range typeOrder {
		made.types[url] = &typeState{bodies: map[string][]byte{}}
	}
	return made
}

// command changes the mesh, and returns the changes.
func (c *catalog) command(line string) ([]change, error) {
	words := strings.Fields(line)
	if words[0] == "set" {
		if line != "set base" {
			return nil, fmt.Errorf("only \"set base\" is known")
		}
		return c.update(baseMesh()), nil
	}
	if err := alter(c.mesh, words[0], words[1:]); err != nil {
		return nil, err
	}
	return c.update(c.mesh), nil
}

// update returns the changes of each type with this mesh.
func (c *catalog) update(mesh *mesh) []change {
	c.mesh = mesh
	resources := mesh.resources()
	var all []change
	for _, url := range typeOrder {
		all = append(all, c.types[url].update(url, resources[url], mesh.ttls))
	}
	return all
}

func (t *typeState) update(url string, resources []types.Resource, ttls map[string]time.Duration) change {
	next := change{url: url, resources: resources, ttls: ttls, updated: map[string]types.Resource{}}
	bodies := map[string][]byte{}
	for _, one := range resources {
		name := cache.GetResourceName(one)
		bodies[name] = fmt.Append(packed(one).GetValue(), ttls[name])
		if held, ok := t.bodies[name]; !ok || !bytes.Equal(held, bodies[name]) {
			next.updated[name] = one
		}
	}
	for name := range t.bodies {
		if _, ok := bodies[name]; !ok {
			next.removed = append(next.removed, name)
		}
	}
	next.isNew = t.version == 0 || len(next.updated)+len(next.removed) > 0
	if next.isNew {
		t.version++
	}
	t.bodies = bodies
	next.version = strconv.Itoa(t.version)
	return next
}

// versions returns the versions of the types by their short names.
func (c *catalog) versions() map[string]string {
	versions := map[string]string{}
	for url, state := range c.types {
		versions[short(url)] = strconv.Itoa(state.version)
	}
	return versions
}

// short returns the last part of a type URL: Cluster.
func short(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}
