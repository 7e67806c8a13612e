package main

import (
	"maps"
	"slices"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// sotwSession is one stream of the state-of-the-world variant.
type sotwSession struct {
	behavior behavior
	number   int64
	sent     int
	types    map[string]*sotwType // by type URL
}

// sotwType is the state of one type: the client's subscriptions, and the resources that were sent.
type sotwType struct {
	names    map[string]bool
	wildcard bool
	named    bool // an empty list of names is no longer a wildcard
	nonce    string
	version  int
	due      bool // there are new subscriptions
}

func (s *sotwSession) handle(request *discovery.DiscoveryRequest) error {
	url, names := request.GetTypeUrl(), request.GetResourceNames()
	event := map[string]any{
		"event": "request", "stream": s.number, "type": short(url), "version": request.GetVersionInfo(),
		"nonce": request.GetResponseNonce(), "names": len(names),
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
		state = &sotwType{due: true}
		s.types[url] = state
	}
	isOutdated := request.GetResponseNonce() != state.nonce
	isUnread := request.GetErrorDetail() != nil && s.behavior.ignoreNamesInNack
	if !isOutdated && !isUnread {
		state.subscribe(names, s.behavior)
	}
	return nil
}

// subscribe replaces the subscribed names by those of a request.
func (t *sotwType) subscribe(names []string, behavior behavior) {
	before, hadAll := t.names, t.wildcard
	t.names = map[string]bool{}
	t.named = t.named || len(names) > 0
	t.wildcard = !t.named
	for _, name := range names {
		if name == "*" && !behavior.legacyWildcard {
			t.wildcard = true
			continue
		}
		t.names[name] = true
		t.due = t.due || !before[name]
	}
	t.due = t.due || t.wildcard && !hadAll
}

// respond sends each type with changes for the client.
func (s *sotwSession) respond(store *store, send func(*discovery.DiscoveryResponse) error) error {
	for _, url := range slices.Sorted(maps.Keys(s.types)) {
		state, now := s.types[url], store.get(url)
		if !state.due && state.version == now.version {
			continue
		}
		s.sent++
		state.nonce, state.version, state.due = strconv.Itoa(s.sent), now.version, false
		response := &discovery.DiscoveryResponse{TypeUrl: url, VersionInfo: strconv.Itoa(now.version), Nonce: state.nonce}
		for name, resource := range now.byName {
			if state.wildcard || state.names[name] {
				response.Resources = append(response.Resources, resource.body)
			}
		}
		emit(map[string]any{
			"event": "response", "stream": s.number, "type": short(url), "version": response.GetVersionInfo(),
			"nonce": response.GetNonce(), "resources": len(response.GetResources()),
		})
		if err := send(response); err != nil {
			return err
		}
	}
	return nil
}
