package main

import (
	"fmt"
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// mesh is what the server serves: 25 services with 200 endpoints in three localities.
//
//   - Each service has a listener of its name. Every third listener holds its routes, the others ask for SERVICE-routes.
//   - A canary (shop, cart, checkout) has the clusters SERVICE-stable and SERVICE-canary, behind weights.
//   - orders has a cluster that aggregates orders-primary (endpoints) and orders-fallback (a DNS name).
//   - Each other service has one cluster of its name. The endpoints of cluster C are called C-endpoints.
type mesh struct {
	services []string
	weights  [2]uint32 // of the stable and the canary cluster
	draining map[string]bool
	invalid  bool // payments breaks a rule, and inventory is changed beside it
	bulk     int  // so many clusters more
}

var names = []string{
	"shop", "cart", "checkout", "orders", "payments", "inventory", "catalog", "search", "reviews", "ratings", "users", "sessions",
	"email", "shipping", "tracking", "returns", "pricing", "taxes", "coupons", "loyalty", "ads", "images", "gateway", "audit", "reports",
}

var canaries = []string{"shop", "cart", "checkout"}

func baseMesh() *mesh {
	return &mesh{services: slices.Clone(names), weights: [2]uint32{99, 1}, draining: map[string]bool{}}
}

func (m *mesh) drain(address string) error {
	for _, service := range m.services {
		for _, cluster := range endpointClusters(service) {
			for _, known := range addresses(cluster) {
				if known == address {
					m.draining[address] = true
					return nil
				}
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

// resources are all resources by type URL.
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
			add(resource.ClusterType, dnsCluster("orders-fallback", "orders.fallback.example", 8443))
			add(resource.ClusterType, aggregateCluster("orders", "orders-primary", "orders-fallback"))
		}
	}
	for i := range m.bulk {
		add(resource.ClusterType, m.cluster(fmt.Sprintf("bulk-%05d", i)))
	}
	return all
}

// endpointClusters are the service's clusters that have endpoints.
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

// addresses are the cluster's endpoints, eight a service; a canary has two of them. The third part of an address is the
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
