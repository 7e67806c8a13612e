package main

import (
	"context"
	"hash/fnv"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// callbacks report streams, requests and responses.
func callbacks() xds.Callbacks {
	return xds.CallbackFuncs{
		StreamOpenFunc:          opened,
		StreamClosedFunc:        closed,
		StreamRequestFunc:       requested,
		StreamResponseFunc:      responded,
		DeltaStreamOpenFunc:     opened,
		DeltaStreamClosedFunc:   closed,
		StreamDeltaRequestFunc:  requestedDelta,
		StreamDeltaResponseFunc: respondedDelta,
		FetchRequestFunc:        polled,
		FetchResponseFunc:       answered,
	}
}

// opened reports a stream, with its type if it is for one type alone.
func opened(_ context.Context, stream int64, url string) error {
	emit(map[string]any{"event": "opened", "stream": stream, "type": short(url)})
	return nil
}

func closed(stream int64, _ *core.Node) {
	emit(map[string]any{"event": "closed", "stream": stream})
}

func requested(stream int64, request *discovery.DiscoveryRequest) error {
	emit(withError(map[string]any{
		"event": "request", "stream": stream, "type": short(request.GetTypeUrl()), "node": request.GetNode().GetId(),
		"version": request.GetVersionInfo(), "nonce": request.GetResponseNonce(),
		"names": len(request.GetResourceNames()), "bytes": proto.Size(request),
	}, request.GetErrorDetail()))
	return nil
}

func responded(
	_ context.Context, stream int64, _ *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse,
) {
	emit(map[string]any{
		"event": "response", "stream": stream, "type": short(response.GetTypeUrl()), "version": response.GetVersionInfo(),
		"nonce": response.GetNonce(), "resources": len(response.GetResources()), "bytes": proto.Size(response),
		"order": order(response.GetResources()),
	})
}

// order returns a digest that distinguishes responses with the same resources in different orders.
func order(resources []*anypb.Any) string {
	digest := fnv.New64a()
	for _, one := range resources {
		digest.Write(one.GetValue()) // never fails
	}
	return strconv.FormatUint(digest.Sum64(), 16)
}

// polled reports a request to the gateway, which has no stream.
func polled(_ context.Context, request *discovery.DiscoveryRequest) error {
	emit(withError(map[string]any{
		"event": "request", "type": short(request.GetTypeUrl()), "node": request.GetNode().GetId(),
		"version": request.GetVersionInfo(), "nonce": request.GetResponseNonce(),
		"names": len(request.GetResourceNames()), "bytes": proto.Size(request),
	}, request.GetErrorDetail()))
	return nil
}

// answered reports a response other than "not modified".
func answered(_ *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse) {
	emit(map[string]any{
		"event": "response", "type": short(response.GetTypeUrl()), "version": response.GetVersionInfo(),
		"resources": len(response.GetResources()),
	})
}

func requestedDelta(stream int64, request *discovery.DeltaDiscoveryRequest) error {
	emit(withError(map[string]any{
		"event": "request", "stream": stream, "type": short(request.GetTypeUrl()), "node": request.GetNode().GetId(),
		"nonce":     request.GetResponseNonce(),
		"subscribe": request.GetResourceNamesSubscribe(), "unsubscribe": request.GetResourceNamesUnsubscribe(),
		"held": len(request.GetInitialResourceVersions()), "bytes": proto.Size(request),
	}, request.GetErrorDetail()))
	return nil
}

func respondedDelta(stream int64, _ *discovery.DeltaDiscoveryRequest, response *discovery.DeltaDiscoveryResponse) {
	emit(map[string]any{
		"event": "response", "stream": stream, "type": short(response.GetTypeUrl()),
		"version": response.GetSystemVersionInfo(), "nonce": response.GetNonce(),
		"resources": len(response.GetResources()), "removed": response.GetRemovedResources(), "bytes": proto.Size(response),
	})
}

func withError(event map[string]any, detail *status.Status) map[string]any {
	if detail != nil {
		event["error"] = map[string]any{"code": detail.GetCode(), "message": detail.GetMessage()}
	}
	return event
}
