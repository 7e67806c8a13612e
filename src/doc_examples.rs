//! The examples of the documents, which are compiled, and some of them run, as tests.

/// The examples of the README, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the document, compiled.
#[cfg(all(doctest, feature = "csds", feature = "channelz", feature = "metrics"))]
#[doc = include_str!("../docs/OPERATING.md")]
struct Operating;

/// The example of the document, compiled.
#[cfg(all(doctest, feature = "client", feature = "balance"))]
#[doc = include_str!("../docs/BALANCE.md")]
struct Balance;

/// The example of the document, compiled.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../docs/SERVER.md")]
struct ServerDocument;

/// The example of the document, compiled.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../docs/LOAD_REPORTS.md")]
struct LoadReports;

/// The examples of the document, compiled and run.
#[cfg(all(doctest, feature = "rbac", feature = "tower", feature = "json"))]
#[doc = include_str!("../docs/RBAC.md")]
struct RbacDocument;

/// The examples of the document, compiled and run.
#[cfg(all(doctest, feature = "channel", feature = "test-util"))]
#[doc = include_str!("../docs/TESTING.md")]
struct Testing;

/// The examples of the document, compiled and run.
#[cfg(all(doctest, feature = "client", feature = "test-util"))]
#[doc = include_str!("../docs/RESOURCE_TYPES.md")]
struct ResourceTypes;

/// The example of the document, compiled and run.
#[cfg(all(doctest, feature = "client", feature = "test-util"))]
#[doc = include_str!("../docs/BATCHES.md")]
struct BatchesOfStores;

/// The example of the document, compiled and run.
#[cfg(all(doctest, feature = "client", feature = "test-util"))]
#[doc = include_str!("../docs/ON_DEMAND.md")]
struct StoresOnDemand;

/// The example of the document, compiled.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../docs/INITIAL_RESOURCES.md")]
struct StartWithoutServer;

/// The examples of the guide, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls", feature = "test-util"))]
#[doc = include_str!("../docs/guides/own-server.md")]
struct OwnServer;

/// The example of the guide, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/guides/go-control-plane.md")]
struct GoControlPlane;

/// The examples of the guide, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/guides/traffic-director.md")]
struct TrafficDirector;

/// The example of the guide, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/guides/istio.md")]
struct Istio;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/channel/README.md")]
struct ChannelReadme;

/// The examples of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/calls.md")]
struct ChannelCalls;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/retries.md")]
struct ChannelRetries;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/balancing.md")]
struct ChannelBalancing;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/hashing.md")]
struct ChannelHashing;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/lookup.md")]
struct ChannelLookup;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/sessions.md")]
struct ChannelSessions;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/channel/security.md")]
struct ChannelSecurity;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel", feature = "tls"))]
#[doc = include_str!("../docs/channel/certificates.md")]
struct ChannelCertificates;

/// The examples of the page, compiled.
#[cfg(all(doctest, feature = "channel", feature = "spiffe"))]
#[doc = include_str!("../docs/channel/providers.md")]
struct ChannelProviders;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/connections.md")]
struct ChannelConnections;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/http2.md")]
struct ChannelHttp2;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel"))]
#[doc = include_str!("../docs/channel/filters.md")]
struct ChannelFilters;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "grpc"))]
#[doc = include_str!("../docs/channel/clients.md")]
struct ChannelClients;

/// The example of the page, compiled.
#[cfg(all(doctest, feature = "channel", feature = "metrics"))]
#[doc = include_str!("../docs/channel/observability.md")]
struct ChannelObservability;
