package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// mesh is the state of the mesh: 25 services with 200 endpoints in three localities.
//
//   - Each service has a listener of its name. Every third listener has inline routes, the others have RDS with SERVICE-routes.
//   - A canary (shop, cart, checkout) has the clusters SERVICE-stable and SERVICE-canary, behind weights.
//   - orders has a cluster that aggregates orders-primary (endpoints) and orders-fallback (a DNS name).
//   - Each other service has one cluster of its name. The endpoints of cluster C are called C-endpoints.
type mesh struct {
	services []string
	weights  [2]uint32                // of the stable and the canary cluster
	canary   map[string]uint32        // by service: of 100 requests, if it is set
	draining map[string]bool          // by address
	failing  map[string]bool          // by cluster: all its endpoints are unhealthy
	located  map[string][][]string    // by cluster: the addresses that a test set, by priority
	limits   map[string]time.Duration // by service: the maximum stream duration of its routes
	secured  map[string]*anypb.Any    // by cluster: the context of its TLS
	fallback string                   // the host of orders-fallback
	renamed  map[string]string        // by cluster: its current name
	rerouted map[string]string        // by service: the current name of its routes
	ttls     map[string]time.Duration // by name of a cluster, or of its endpoints
	lost     map[string]bool          // by service: its routes lead to a missing cluster
	reports  map[string]bool          // by cluster: its load is reported to this server
	invalid  bool                     // payments is invalid, and inventory is changed in addition
	bulk     int                      // the number of additional clusters
}

var names = []string{
	"shop", "cart", "checkout", "orders", "payments", "inventory", "catalog", "search", "reviews", "ratings", "users", "sessions",
	"email", "shipping", "tracking", "returns", "pricing", "taxes", "coupons", "loyalty", "ads", "images", "gateway", "audit", "reports",
}

var canaries = []string{"shop", "cart", "checkout"}

func baseMesh() *mesh {
	return &mesh{
		services: slices.Clone(names),
		weights:  [2]uint32{99, 1},
		canary:   map[string]uint32{},
		draining: map[string]bool{},
		failing:  map[string]bool{},
		located:  map[string][][]string{},
		limits:   map[string]time.Duration{},
		secured:  map[string]*anypb.Any{},
		fallback: "orders.fallback.example",
		renamed:  map[string]string{},
		rerouted: map[string]string{},
		ttls:     map[string]time.Duration{},
		lost:     map[string]bool{},
		reports:  map[string]bool{},
	}
}

func (m *mesh) weigh(service string, weight uint32) error {
	if !slices.Contains(canaries, service) || weight > 100 {
		return fmt.Errorf("not a canary, or more than 100")
	}
	m.canary[service] = weight
	return nil
}

// weightsOf returns the weights of the service's stable and canary clusters.
func (m *mesh) weightsOf(service string) [2]uint32 {
	if weight, ok := m.canary[service]; ok {
		return [2]uint32{100 - weight, weight}
	}
	return m.weights
}

func (m *mesh) setReporting(cluster string, reporting bool) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	m.reports[cluster] = reporting
	return nil
}

func (m *mesh) setFailing(cluster string, failing bool) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	m.failing[cluster] = failing
	return nil
}

// locate sets the addresses of a cluster, with "/" between priorities.
func (m *mesh) locate(cluster string, words []string) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	priorities := [][]string{nil}
	for _, word := range words {
		if word == "/" {
			priorities = append(priorities, nil)
			continue
		}
		if _, err := netip.ParseAddrPort(word); err != nil {
			return err
		}
		last := len(priorities) - 1
		priorities[last] = append(priorities[last], word)
	}
	m.located[cluster] = priorities
	return nil
}

func (m *mesh) limit(service string, limit time.Duration) error {
	if !slices.Contains(m.services, service) {
		return fmt.Errorf("no such service")
	}
	m.limits[service] = limit
	return nil
}

// secure sets the TLS of a cluster by the JSON of an UpstreamTlsContext, or has it end.
func (m *mesh) secure(cluster, json string) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	if json == "" {
		delete(m.secured, cluster)
		return nil
	}
	context := &tls.UpstreamTlsContext{}
	if err := protojson.Unmarshal([]byte(json), context); err != nil {
		return err
	}
	m.secured[cluster] = packed(context)
	return nil
}

func (m *mesh) rename(cluster, name string) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	m.renamed[cluster] = name
	return nil
}

// nameOf returns the current name of a cluster.
func (m *mesh) nameOf(cluster string) string {
	if name, ok := m.renamed[cluster]; ok {
		return name
	}
	return cluster
}

func (m *mesh) reroute(service, name string) error {
	if !slices.Contains(m.services, service) || hasInlineRoutes(service) {
		return fmt.Errorf("no such service with routes of their own")
	}
	m.rerouted[service] = name
	return nil
}

// routesName returns the current name of a service's routes.
func (m *mesh) routesName(service string) string {
	if name, ok := m.rerouted[service]; ok {
		return name
	}
	return service + "-routes"
}

func (m *mesh) expire(cluster string, after time.Duration) error {
	if !m.hasEndpoints(cluster) {
		return fmt.Errorf("no such cluster with endpoints")
	}
	m.ttls[cluster], m.ttls[cluster+"-endpoints"] = after, after
	return nil
}

func (m *mesh) setLost(service string, lost bool) error {
	if !slices.Contains(m.services, service) || slices.Contains(canaries, service) {
		return fmt.Errorf("no such service with one cluster")
	}
	m.lost[service] = lost
	return nil
}

func (m *mesh) hasEndpoints(cluster string) bool {
	return slices.ContainsFunc(m.services, func(service string) bool {
		return slices.Contains(endpointClusters(service), cluster)
	})
}

func (m *mesh) drain(address string) error {
	for _, service := range m.services {
		for _, cluster := range endpointClusters(service) {
			known := append(addresses(cluster), slices.Concat(m.located[cluster]...)...)
			if slices.Contains(known, address) {
				m.draining[address] = true
				return nil
			}
		}
	}
	return fmt.Errorf("no endpoint has this address")
}

func (m *mesh) remove(service string) error {
	at := slices.Index(m.services, service)
	if at < 0 {
		return fmt.Errorf("no such service")
	}
	m.services = slices.Delete(m.services, at, at+1)
	return nil
}

// resources returns all resources by type URL.
func (m *mesh) resources() map[string][]types.Resource {
	all := map[string][]types.Resource{
		resource.ListenerType: nil, resource.RouteType: nil, resource.ClusterType: nil, resource.EndpointType: nil,
	}
	add := func(url string, one types.Resource) { all[url] = append(all[url], one) }
	for _, service := range m.services {
		routes := m.routes(service)
		if hasInlineRoutes(service) {
			add(resource.ListenerType, listenerWithRoutes(service, routes))
		} else {
			add(resource.ListenerType, listenerAskingFor(service, routes.GetName()))
			add(resource.RouteType, routes)
		}
		for _, cluster := range endpointClusters(service) {
			add(resource.ClusterType, m.cluster(cluster))
			add(resource.EndpointType, m.endpoints(cluster))
		}
		if service == "orders" {
			add(resource.ClusterType, dnsCluster("orders-fallback", m.fallback, 8443))
			add(resource.ClusterType, aggregateCluster("orders", m.nameOf("orders-primary"), "orders-fallback"))
		}
	}
	for i := range m.bulk {
		add(resource.ClusterType, m.cluster(fmt.Sprintf("bulk-%05d", i)))
	}
	return all
}

// endpointClusters returns the service's clusters with endpoints.
func endpointClusters(service string) []string {
	switch {
	case slices.Contains(canaries, service):
		return []string{service + "-stable", service + "-canary"}
	case service == "orders":
		return []string{"orders-primary"}
	default:
		return []string{service}
	}
}

func hasInlineRoutes(service string) bool {
	return slices.Index(names, service)%3 == 0
}

// addresses returns the cluster's endpoints, eight a service; a canary has two of them. The third part of an address is the
// number of the service, from one.
func addresses(cluster string) []string {
	var all []string
	for number, service := range names {
		first := 1
		for _, candidate := range endpointClusters(service) {
			count := endpointsOf(service, candidate)
			for i := first; candidate == cluster && i < first+count; i++ {
				all = append(all, fmt.Sprintf("10.1.%d.%d:8080", number+1, i))
			}
			first += count
		}
	}
	return all
}

func endpointsOf(service, cluster string) int {
	switch cluster {
	case service + "-stable":
		return 6
	case service + "-canary":
		return 2
	default:
		return 8
	}
}
