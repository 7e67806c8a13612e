//! Typed resources: parsed and validated values of the messages of a management server.
//!
//! A value of one of these types has passed all validation rules and is usable as it is. Fields of a message without
//! a counterpart in these types are ignored.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    config::{AllowedGrpcService, ConfigSource, NamedServers, TransportApiVersion},
    wire,
};

mod any_message;
mod collection;
mod connection_manager;
mod extension;
mod extension_config;
mod inspected;
mod parts;
mod prost_message;
mod registry;
mod remarks;
mod routes;
// Used by the tests of the transports and of the control plane, each behind its feature.
#[cfg(test)]
mod samples;
#[allow(dead_code)]
pub(crate) mod services;
#[cfg(test)]
mod shapes;
mod slices;
mod unexecuted;
mod v2;

pub mod cluster;
pub mod cluster_plugin;
pub mod config_source;
pub mod endpoints;
pub mod filter_chain;
pub mod grpc_service;
pub mod http_filter;
pub mod listener;
pub mod load_balancing;
pub mod matcher;
pub mod metadata;
pub mod outlier;
mod resource_type;
pub mod retry;
pub mod route;
pub mod route_action;
pub mod route_lookup;
pub mod route_match;
pub mod runtime;
pub mod scope;
pub mod scoped_route;
pub mod secret;
pub mod tls;
#[cfg_attr(not(feature = "client"), allow(dead_code, reason = "the consumers of a client use it"))]
mod unkept;
pub mod virtual_host;

use self::matcher::RegexLimits;
pub(crate) use collection::{Inline, List, ListEntry};
#[cfg(any(test, feature = "client"))]
pub(crate) use unkept::Unkept;

#[cfg(any(test, feature = "control-plane", feature = "fuzzing"))]
pub(crate) use self::parts::json_object;
pub(crate) use crate::base::Erased;
pub use crate::base::{Invalid, TypeUrl, Version, type_url};
pub use any_message::AnyMessage;
pub use cluster::{Cluster, ClusterKind};
pub use endpoints::{ClusterLoadAssignment, Endpoint, HealthStatus, Locality};
pub use extension::{Custom, Extension, Payload};
pub use extension_config::ExtensionConfig;
pub use inspected::{Inspected, Validation};
pub use listener::Listener;
pub use load_balancing::LbPolicy;
pub use metadata::Metadata;
pub use outlier::OutlierDetection;
pub use prost_message::Prost;
pub use registry::Registry;
pub use remarks::{LeftOut, Remarks};
pub use resource_type::ResourceType;
pub use route::RouteConfiguration;
pub use runtime::Runtime;
pub use scoped_route::ScopedRouteConfiguration;
pub use secret::{Secret, SecretKind};
pub use tls::{DownstreamTls, UpstreamTls};
pub use virtual_host::VirtualHost;

/// A type of resource that can be watched.
///
/// The crate implements it for the types of the xDS protocol. Messages of an application are resources by [`Prost`], without rules. An
/// application can implement it for types of its own, with any type URL:
///
/// ```
/// use bytes::Bytes;
/// use xdskit::resource::{Context, Invalid, Resource};
///
/// /// A resource with a name alone, in field 1.
/// #[derive(Debug)]
/// struct Banner(Bytes);
///
/// impl Resource for Banner {
///     const TYPE_URL: &'static str = "type.googleapis.com/example.Banner";
///
///     fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
///         Ok(Self(bytes.clone()))
///     }
/// }
/// ```
pub trait Resource: fmt::Debug + Send + Sync + Sized + 'static {
    /// The type URL on the wire, with the prefix `type.googleapis.com/`.
    const TYPE_URL: &'static str;

    /// Whether each state-of-the-world response of the type contains all requested resources, so that absence means
    /// deletion (rule B1.10): true only for Listener and Cluster.
    const FULL_STATE: bool = false;

    /// Whether the bytes may contain secrets, such as private keys. Such bytes are excluded from the status of a
    /// client.
    const SENSITIVE: bool = false;

    /// The type URL of list collections of these resources, if there is such a type: a message with the entries in its
    /// field 1 (rule X12).
    const COLLECTION_TYPE_URL: Option<&'static str> = None;

    /// The validation profile: accepts resources that a gRPC client could use, or all that are well-formed
    /// ([`Observe`](Validation::Observe)), as for [`Inspected`]. The watches of an observing type have streams of
    /// their own.
    const VALIDATION: Validation = Validation::Grpc;

    /// The name in the message: string field 1, as in every type of the protocol document.
    ///
    /// # Errors
    /// The bytes are not a protobuf message, or the name is not UTF-8.
    fn name(bytes: &[u8]) -> Result<Cow<'_, str>, Invalid> {
        match wire::string_field(bytes, 1) {
            Ok(name) => Ok(Cow::Borrowed(name)),
            Err(malformed) => Err(Invalid::new(format!("not a valid message: {malformed}"))),
        }
    }

    /// Returns what is not used of the resource, if the type records that.
    fn remarks(&self) -> Option<&Remarks> {
        None
    }

    /// Parses and validates the message.
    ///
    /// `bytes` are exactly those of the resource: slices of them keep no other resource in memory.
    ///
    /// # Errors
    /// The resource is invalid: the path of the field and the reason.
    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid>;
}

/// The context of validation: the inputs of the rules in addition to the bytes of a resource.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Context<'a> {
    /// Names of the usable certificate provider instances in the bootstrap.
    pub certificate_providers: Option<&'a BTreeSet<String>>,
    /// Whether the server has the feature `trusted_xds_server`, so that fields that affect security are
    /// honoured.
    pub trusted_server: bool,
    /// The gRPC services in the bootstrap that any server may refer to, by target (A102).
    pub allowed_grpc_services: Option<&'a BTreeMap<String, AllowedGrpcService>>,
    /// The extensions of the application.
    pub registry: &'a Registry,
    /// The servers that config sources may name, beside files; `None` follows no sources other than `ads` and `self`.
    pub(crate) named_servers: Option<&'a NamedServers>,
    /// The server that sent the resource.
    pub(crate) peer: Option<&'a ConfigSource>,
    /// The directory of the files that sources may name; `None` allows any.
    pub(crate) file_root: Option<&'a Arc<Path>>,
    /// The limits of regular expressions.
    pub regex_limits: RegexLimits,
    /// The time to live that was sent with these bytes; `None` for no limit.
    pub ttl: Option<Duration>,
    /// The name of the resource.
    name: Option<&'a Arc<str>>,
    /// The type URL of the resource.
    type_url: Option<&'static str>,
}

impl<'a> Context<'a> {
    /// A context for an untrusted server, without certificate providers and extensions of an application.
    pub const fn new() -> Self {
        // A static, since the context borrows its registry.
        static NOTHING: Registry = Registry::new();
        Self {
            certificate_providers: None,
            trusted_server: false,
            allowed_grpc_services: None,
            registry: &NOTHING,
            named_servers: None,
            peer: None,
            file_root: None,
            regex_limits: RegexLimits::DEFAULT,
            ttl: None,
            name: None,
            type_url: None,
        }
    }

    /// Sets the type URL of the resource.
    const fn with_type_url(mut self, type_url: &'static str) -> Self {
        self.type_url = Some(type_url);
        self
    }

    /// Sets the name of the resource, for its fields to share.
    pub(crate) const fn with_name(mut self, name: &'a Arc<str>) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the time to live.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// Converts text to a shared string, which is the name of the resource if equal to it.
    pub(crate) fn share(&self, text: &str) -> Arc<str> {
        match self.name {
            Some(name) if **name == *text => name.clone(),
            Some(_) | None => text.into(),
        }
    }

    /// Sets the names of the usable certificate provider instances.
    #[must_use]
    pub const fn with_certificate_providers(mut self, names: &'a BTreeSet<String>) -> Self {
        self.certificate_providers = Some(names);
        self
    }

    /// Sets whether the server has the feature `trusted_xds_server`.
    #[must_use]
    pub const fn with_trusted_server(mut self, trusted: bool) -> Self {
        self.trusted_server = trusted;
        self
    }

    /// Sets the gRPC services that any server may refer to, by target.
    #[must_use]
    pub const fn with_allowed_grpc_services(
        mut self,
        services: &'a BTreeMap<String, AllowedGrpcService>,
    ) -> Self {
        self.allowed_grpc_services = Some(services);
        self
    }

    /// Follows sources other than `ads` and `self`, to files and to servers of these names.
    #[must_use]
    pub(crate) const fn with_named_servers(mut self, servers: Option<&'a NamedServers>) -> Self {
        self.named_servers = servers;
        self
    }

    /// Sets the server that sent the resource.
    #[must_use]
    pub(crate) const fn with_peer(mut self, peer: &'a ConfigSource) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Whether the server that sent the resource uses v2 of the protocol.
    fn is_peer_of_v2(&self) -> bool {
        matches!(self.peer, Some(ConfigSource::Server(server)) if server.transport_api_version == TransportApiVersion::V2)
    }

    /// Sets the directory of the files that sources may name.
    #[must_use]
    pub(crate) const fn with_file_root(mut self, root: Option<&'a Arc<Path>>) -> Self {
        self.file_root = root;
        self
    }

    /// Sets the limits of regular expressions.
    #[must_use]
    pub const fn with_regex_limits(mut self, limits: RegexLimits) -> Self {
        self.regex_limits = limits;
        self
    }

    /// Sets the extensions of the application.
    #[must_use]
    pub const fn with_registry(mut self, registry: &'a Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Returns whether the bootstrap has a usable certificate provider instance of this name.
    pub fn has_certificate_provider(&self, name: &str) -> bool {
        self.certificate_providers.is_some_and(|names| names.contains(name))
    }

    /// Returns whether any server may refer to the gRPC service with this target.
    pub fn is_grpc_service_allowed(&self, target: &str) -> bool {
        self.allowed_grpc_services.is_some_and(|services| services.contains_key(target))
    }
}

impl Default for Context<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Resource> TypeUrl for T {
    fn type_url() -> &'static str {
        T::TYPE_URL
    }
}
