package main

import (
	"maps"
	"slices"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// deltaSession is one stream of the incremental variant.
type deltaSession struct {
	behavior behavior
	number   int64
	sent     int
	types    map[string]*deltaType // by type URL
}

// deltaType is the state of one type: the client's subscriptions and resources.
type deltaType struct {
	names    map[string]bool
	wildcard bool
	held     map[string]string // versions by name
	due      bool              // the wildcard has begun, which gets a response even without resources
	missing  map[string]bool   // names that were subscribed to and are not in a response yet
}

func (s *deltaSession) handle(request *discovery.DeltaDiscoveryRequest) error {
	url := request.GetTypeUrl()
	event := map[string]any{
		"event": "request", "stream": s.number, "type": short(url), "nonce": request.GetResponseNonce(),
		"subscribe": request.GetResourceNamesSubscribe(), "unsubscribe": request.GetResourceNamesUnsubscribe(),
		"held": len(request.GetInitialResourceVersions()),
	}
	if detail := request.GetErrorDetail(); detail != nil {
		event["error"] = detail.GetMessage()
	}
	emit(event)
	if err := s.behavior.check(url); err != nil {
		return err
	}
	state, known := s.types[url]
	if !known {
		state = &deltaType{names: map[string]bool{}, held: map[string]string{}, missing: map[string]bool{}}
		maps.Copy(state.held, request.GetInitialResourceVersions())
		state.wildcard = len(request.GetResourceNamesSubscribe()) == 0
		state.due = state.wildcard
		s.types[url] = state
	}
	if request.GetErrorDetail() != nil && s.behavior.ignoreNamesInNack {
		return nil
	}
	state.subscribe(request, s.behavior)
	return nil
}

func (t *deltaType) subscribe(request *discovery.DeltaDiscoveryRequest, behavior behavior) {
	for _, name := range request.GetResourceNamesSubscribe() {
		if name == "*" && !behavior.legacyWildcard {
			t.wildcard, t.due = true, true
			continue
		}
		t.names[name], t.missing[name] = true, true
	}
	for _, name := range request.GetResourceNamesUnsubscribe() {
		if name == "*" && !behavior.legacyWildcard {
			t.wildcard = false
			continue
		}
		delete(t.names, name)
		// The client cannot determine whether the wildcard includes it.
		t.missing[name] = t.wildcard
	}
	for name := range t.held {
		if !t.wildcard && !t.names[name] {
			delete(t.held, name)
		}
	}
}

// respond sends each type with changes for the client.
func (s *deltaSession) respond(store *store, send func(*discovery.DeltaDiscoveryResponse) error) error {
	for _, url := range slices.Sorted(maps.Keys(s.types)) {
		state, now := s.types[url], store.get(url)
		response := state.changes(now)
		if !state.due && len(response.GetResources())+len(response.GetRemovedResources()) == 0 {
			continue
		}
		s.sent++
		state.due = false
		response.TypeUrl, response.SystemVersionInfo, response.Nonce = url, strconv.Itoa(now.version), strconv.Itoa(s.sent)
		emit(map[string]any{
			"event": "response", "stream": s.number, "type": short(url), "version": response.GetSystemVersionInfo(),
			"nonce": response.GetNonce(), "resources": len(response.GetResources()), "removed": response.GetRemovedResources(),
		})
		if err := send(response); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the resources that the client lacks, and those that it has and that were removed. They then count as sent.
func (t *deltaType) changes(now resources) *discovery.DeltaDiscoveryResponse {
	response := &discovery.DeltaDiscoveryResponse{}
	for name, resource := range now.byName {
		isNew := t.missing[name] || t.held[name] != resource.version
		if isNew && (t.wildcard || t.names[name]) {
			t.held[name] = resource.version
			response.Resources = append(response.Resources, &discovery.Resource{
				Name: name, Version: resource.version, Resource: resource.body,
			})
		}
	}
	gone := maps.Clone(t.missing)
	for name := range t.held {
		gone[name] = true
	}
	for name, isGone := range gone {
		if _, ok := now.byName[name]; !ok && isGone {
			delete(t.held, name)
			response.RemovedResources = append(response.RemovedResources, name)
		}
	}
	clear(t.missing)
	return response
}
