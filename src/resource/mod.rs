//! Typed resources: parsed and validated values of the messages of a management server.
//!
//! A value of one of these types has passed all validation rules and is usable as it is. Fields of a message without
//! a counterpart in these types are ignored.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    config::{AllowedGrpcService, ConfigSource, NamedServers, TransportApiVersion},
    name::ResourceName,
    observed::ErasedObserved,
    wire,
};

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
pub mod virtual_host;

use self::matcher::RegexLimits;
pub(crate) use collection::{Inline, List, ListEntry};

#[cfg(any(test, feature = "control-plane", feature = "fuzzing"))]
pub(crate) use self::parts::json_object;
pub(crate) use crate::base::Erased;
pub use crate::base::{Invalid, TypeUrl, Version, type_url};
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
        }
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

/// A type of resource as a value, for code that is generic over types at run time.
#[derive(Clone, Copy)]
// Functions in place of a trait object, so that it is `Copy` and constants can have one.
pub struct ResourceType {
    /// The type URL of v3, whatever the version of the protocol.
    type_url: &'static str,
    /// Whether responses of the state of the world have all resources, so that a missing one is deleted.
    full_state: bool,
    /// Whether contents must not be shown.
    sensitive: bool,
    /// Reads the name in a message. An error for types whose resources have none, and are always wrapped.
    name: fn(&[u8]) -> Result<Cow<'_, str>, Invalid>,
    /// Parses a resource to the type that its watches cast back to.
    parse: fn(&Bytes, &Context<'_>) -> Result<Erased, Invalid>,
    /// Converts an observation to one of the typed resource, behind a pointer that the typed watch casts back.
    observe: fn(ErasedObserved) -> Erased,
    /// Returns what is not used of a parsed resource.
    remarks: fn(&Erased) -> Option<&Remarks>,
    /// The type of lists of these resources.
    list: Option<fn() -> Self>,
    /// Whether the resources are lists of others. There are no lists of lists.
    is_list: bool,
}

impl ResourceType {
    /// The type of `T`.
    pub const fn of<T: Resource>() -> Self {
        Self {
            type_url: T::TYPE_URL,
            full_state: T::FULL_STATE,
            sensitive: T::SENSITIVE,
            name: T::name,
            parse: |bytes, cx| Ok(Arc::new(T::parse(bytes, cx)?)),
            observe: |observed| Arc::new(observed.typed::<T>()),
            remarks: |resource| resource.downcast_ref::<T>().and_then(T::remarks),
            list: if T::COLLECTION_TYPE_URL.is_some() { Some(Self::list_of::<T>) } else { None },
            is_list: false,
        }
    }

    /// Returns the type under another type URL, for resources that are not parsed.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub const fn with_type_url(mut self, type_url: &'static str) -> Self {
        self.type_url = type_url;
        self
    }

    /// Sets whether absence from a state-of-the-world response means deletion.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub const fn with_full_state(mut self, full_state: bool) -> Self {
        self.full_state = full_state;
        self
    }

    /// Sets whether the bytes are excluded from the status of a client.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub const fn with_sensitive(mut self, sensitive: bool) -> Self {
        self.sensitive = sensitive;
        self
    }

    /// The type of lists of resources of type `T`.
    fn list_of<T: Resource>() -> Self {
        Self {
            // `of` offers lists of types with a list alone, so that the default is never used.
            type_url: T::COLLECTION_TYPE_URL.unwrap_or_default(),
            full_state: false,
            sensitive: T::SENSITIVE,
            name: |_| {
                Err(Invalid::new("a list collection has no name in it, and must be wrapped in a Resource"))
            },
            parse: |bytes, cx| Ok(Arc::new(List::parse::<T>(bytes, cx)?)),
            observe: |observed| Arc::new(observed),
            remarks: |_| None,
            list: None,
            is_list: true,
        }
    }

    /// The type of lists of these resources.
    pub(crate) fn list(&self) -> Option<Self> {
        self.list.map(|list| list())
    }

    /// Returns whether the resources are lists of others.
    pub(crate) fn is_list(&self) -> bool {
        self.is_list
    }

    /// Checks the target of a redirect or list entry for the type: a resource or a glob of the type, or an entry in a list of
    /// its resources (X22). An old-style name has no type.
    pub(crate) fn check_locator(&self, locator: &ResourceName) -> Result<(), String> {
        let Some(named) = locator.resource_type() else {
            return match locator.as_str() {
                // In requests `*` is the wildcard.
                name @ ("" | "*") => Err(format!("leads to {name:?}, which is not one resource")),
                _ => Ok(()),
            };
        };
        let own = parts::message_name(self.type_url);
        let is_entry = locator.directives().is_some_and(|directives| directives.entry().is_some());
        let of_type = if is_entry { named.strip_suffix("Collection") } else { Some(named) };
        match of_type == Some(own) {
            true => Ok(()),
            false => Err(format!("leads to a resource of type {named}, not of {own}")),
        }
    }

    /// Returns the type URL on the wire.
    pub const fn type_url(&self) -> &'static str {
        self.type_url
    }

    /// Returns whether absence from a state-of-the-world response means deletion.
    pub const fn full_state(&self) -> bool {
        self.full_state
    }

    /// Returns whether the bytes are excluded from the status of a client.
    pub const fn is_sensitive(&self) -> bool {
        self.sensitive
    }

    /// Reads the name of an encoded resource.
    ///
    /// # Errors
    /// The bytes are not a message, or the resources of the type have no name in them and are always wrapped.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, Invalid> {
        (self.name)(bytes)
    }

    /// Parses an encoded resource, within the budget of regular expressions. A panic of the parser is an error of this resource.
    pub(crate) fn parse(&self, bytes: &Bytes, cx: &Context<'_>) -> Result<Erased, Invalid> {
        // The parser may be an application's. A panic in it must not affect other resources (G7).
        let parse = || matcher::with_regex_budget(cx.regex_limits, || (self.parse)(bytes, cx));
        panic::catch_unwind(AssertUnwindSafe(parse))
            .unwrap_or_else(|_| Err(Invalid::new("the parser of this type has panicked")))
    }

    /// Returns what is not used of a resource of the type.
    pub(crate) fn remarks<'a>(&self, resource: &'a Erased) -> Option<&'a Remarks> {
        (self.remarks)(resource).filter(|remarks| !remarks.is_empty())
    }

    /// Converts an observation to the type that the watches of these resources expect.
    pub(crate) fn observe(&self, observed: ErasedObserved) -> Erased {
        (self.observe)(observed)
    }
}

impl fmt::Debug for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResourceType").field(&self.type_url).finish()
    }
}

impl<T: Resource> TypeUrl for T {
    fn type_url() -> &'static str {
        T::TYPE_URL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application's resource type with a faulty parser.
    #[derive(Debug)]
    struct Trap(u8);

    impl Resource for Trap {
        const TYPE_URL: &'static str = "type.googleapis.com/test.Trap";

        fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
            Ok(Self(bytes[0]))
        }
    }

    #[test]
    fn g7_rejects_a_resource_whose_parser_panics_and_takes_the_next() {
        let ty = ResourceType::of::<Trap>();
        let e = ty.parse(&Bytes::new(), &Context::new()).unwrap_err();
        assert_eq!(e.to_string(), "the parser of this type has panicked");
        let next = ty.parse(&Bytes::from_static(b"x"), &Context::new()).unwrap();
        assert_eq!(next.downcast_ref::<Trap>().map(|trap| trap.0), Some(b'x'));
    }
}
