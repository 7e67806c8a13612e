package main

import (
	"maps"
	"slices"

	"github.com/hashicorp/consul/agent/cache"
	"github.com/hashicorp/consul/agent/connect"
	"github.com/hashicorp/consul/agent/consul/discoverychain"
	"github.com/hashicorp/consul/agent/proxycfg"
	"github.com/hashicorp/consul/agent/structs"
	"github.com/mitchellh/go-testing-interface"
)

// The proxies of the service web.
const (
	sidecar     = "web-sidecar-proxy"
	transparent = "web-transparent-proxy"
)

const (
	datacenter  = "dc1"
	trustDomain = connect.TestClusterID + ".consul"
)

// Consul puts certificates and keys into its messages. It does not parse them, so they need not be real.
const (
	certificate = "-----BEGIN CERTIFICATE-----\nthe certificate of web\n-----END CERTIFICATE-----\n"
	privateKey  = "the private key of web\n"
	root        = "-----BEGIN CERTIFICATE-----\nthe root certificate\n-----END CERTIFICATE-----\n"
)

// snapshots are the complete configurations of these proxies in Consul, by their ids.
func snapshots() source {
	upstreams := structs.Upstreams{
		{DestinationName: "cart", LocalBindPort: 9191},
		{DestinationName: "payments", LocalBindPort: 9192},
	}
	return source{
		sidecar:     snapshot(sidecar, structs.ConnectProxyConfig{Upstreams: upstreams}),
		transparent: snapshot(transparent, structs.ConnectProxyConfig{Mode: structs.ProxyModeTransparent}),
	}
}

// snapshot runs Consul's handlers with the events that its servers would send to the agent. The handlers are only accessible by
// this function, whose own events are replaced.
func snapshot(id string, config structs.ConnectProxyConfig) *proxycfg.ConfigSnapshot {
	config.DestinationServiceID = "web"
	config.DestinationServiceName = "web"
	config.LocalServiceAddress = "127.0.0.1"
	config.LocalServicePort = 8080
	config.Config = map[string]any{"protocol": "http"}
	events := append(mesh(), upstream("cart")...)
	events = append(events, upstream("payments")...)
	return proxycfg.TestConfigSnapshot(&testing.RuntimeT{}, func(service *structs.NodeService) {
		service.ID = id
		service.Address = "10.0.0.1"
		service.Port = 21000
		service.Proxy = config
	}, append(events, withdrawn()...))
}

// withdrawn are the events of that function without a counterpart here.
func withdrawn() []cache.UpdateEvent {
	return []cache.UpdateEvent{
		{CorrelationID: "upstream:prepared_query:geo-cache"},
		{CorrelationID: "discovery-chain:db"},
		{CorrelationID: "upstream-target:db.default.default.dc1:db"},
	}
}

// mesh is the part that does not depend on upstreams. Only client may call web, and only to read.
func mesh() []cache.UpdateEvent {
	intentions := structs.Intentions{{
		SourceNS: "default", SourceName: "client", SourceType: structs.IntentionSourceConsul,
		DestinationNS: "default", DestinationName: "web", Precedence: 9,
		Permissions: []*structs.IntentionPermission{{
			Action: structs.IntentionActionAllow,
			HTTP:   &structs.IntentionHTTPPermission{PathPrefix: "/", Methods: []string{"GET"}},
		}},
	}}
	called := structs.ServiceList{structs.NewServiceName("cart", nil), structs.NewServiceName("payments", nil)}
	return []cache.UpdateEvent{
		{CorrelationID: "roots", Result: &structs.IndexedCARoots{
			ActiveRootID: "root", TrustDomain: trustDomain,
			Roots: []*structs.CARoot{{ID: "root", Name: "root", RootCert: root, Active: true}},
		}},
		{CorrelationID: "leaf", Result: &structs.IssuedCert{
			CertPEM: certificate, PrivateKeyPEM: privateKey, Service: "web",
			ServiceURI: "spiffe://" + trustDomain + "/ns/default/dc/dc1/svc/web",
		}},
		{CorrelationID: "intentions", Result: &structs.IndexedIntentionMatches{Matches: []structs.Intentions{intentions}}},
		{CorrelationID: "mesh", Result: &structs.ConfigEntryResponse{}},
		{CorrelationID: "intention-upstreams", Result: &structs.IndexedServiceList{Services: called}},
	}
}

// upstream is the discovery chain of a service, with the instances of its targets.
func upstream(name string) []cache.UpdateEvent {
	id := proxycfg.NewUpstreamID(&structs.Upstream{DestinationName: name}).String()
	chain := discoverychain.TestCompileConfigEntries(&testing.RuntimeT{}, name, "default", "default", datacenter, trustDomain,
		nil, entries()...)
	events := []cache.UpdateEvent{{
		CorrelationID: "discovery-chain:" + id, Result: &structs.DiscoveryChainResponse{Chain: chain},
	}}
	// Consul also watches the service as a whole, for its virtual addresses.
	for _, target := range append(slices.Collect(maps.Keys(chain.Targets)), chain.ID()) {
		events = append(events, cache.UpdateEvent{
			CorrelationID: "upstream-target:" + target + ":" + id,
			Result:        &structs.IndexedCheckServiceNodes{Nodes: instances[target]},
		})
	}
	return events
}

// entries are the configuration of the mesh: most calls of cart go to its version 1, and those of /admin to version 2.
func entries() []structs.ConfigEntry {
	return []structs.ConfigEntry{
		&structs.ServiceConfigEntry{Kind: structs.ServiceDefaults, Name: "cart", Protocol: "http"},
		&structs.ServiceResolverConfigEntry{
			Kind: structs.ServiceResolver, Name: "cart", DefaultSubset: "v1",
			Subsets: map[string]structs.ServiceResolverSubset{
				"v1": {Filter: `Service.Meta.version == "v1"`},
				"v2": {Filter: `Service.Meta.version == "v2"`},
			},
		},
		&structs.ServiceSplitterConfigEntry{
			Kind: structs.ServiceSplitter, Name: "cart",
			Splits: []structs.ServiceSplit{{Weight: 90, ServiceSubset: "v1"}, {Weight: 10, ServiceSubset: "v2"}},
		},
		&structs.ServiceRouterConfigEntry{
			Kind: structs.ServiceRouter, Name: "cart",
			Routes: []structs.ServiceRoute{{
				Match:       &structs.ServiceRouteMatch{HTTP: &structs.ServiceRouteHTTPMatch{PathPrefix: "/admin"}},
				Destination: &structs.ServiceRouteDestination{ServiceSubset: "v2"},
			}},
		},
	}
}

var (
	cart1 = instance("cart", "10.0.0.4", "240.0.0.1")
	cart2 = instance("cart", "10.0.0.5", "240.0.0.1")
	cart3 = instance("cart", "10.0.0.6", "240.0.0.1")
)

// instances of the targets of discovery chains.
var instances = map[string]structs.CheckServiceNodes{
	"v1.cart.default.default.dc1":  {cart1, cart2},
	"v2.cart.default.default.dc1":  {cart3},
	"cart.default.default.dc1":     {cart1, cart2, cart3},
	"payments.default.default.dc1": {instance("payments", "10.0.0.7", "240.0.0.2")},
}

func instance(service, address, virtual string) structs.CheckServiceNode {
	return structs.CheckServiceNode{
		Node: &structs.Node{Node: "node-of-" + address, Address: address, Datacenter: datacenter},
		Service: &structs.NodeService{
			Kind: structs.ServiceKindConnectProxy, Service: service + "-sidecar-proxy", Address: address, Port: 21000,
			Proxy:           structs.ConnectProxyConfig{DestinationServiceName: service},
			TaggedAddresses: map[string]structs.ServiceAddress{structs.TaggedAddressVirtualIP: {Address: virtual}},
		},
	}
}
