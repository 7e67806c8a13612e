//! The extensions of an application.

use std::{any::TypeId, collections::BTreeMap, fmt};

use serde_json::{Map, Value};

#[cfg(feature = "channel")]
use super::http_filter::ClientFilter;
#[cfg(feature = "tls")]
use super::tls::certificate_provider::{self, CertificateProviderPlugin, StartPlugin};
use super::{
    Context, Invalid,
    extension::{Custom, Extension, Payload},
    http_filter::{
        FilterType, HttpFilterExtension,
        rbac::{AuditLoggerExtension, CustomAuditLogger},
    },
    load_balancing::{self, EndpointPolicy, ParsePolicy},
};

/// The extensions of an application, in addition to the built-in ones. An extension with the type name of a built-in one
/// replaces it.
///
/// Resources with an unknown extension are rejected, or accepted without it, by the rules of each kind of extension.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registry {
    /// Load balancing policies.
    lb_policies: Extensions<ParsePolicy>,
    /// Cluster specifier plugins.
    cluster_specifiers: Extensions<Parse>,
    /// HTTP filters.
    http_filters: Extensions<FilterType>,
    /// Loggers of authorization.
    audit_loggers: Extensions<ParseAuditLogger>,
    /// Types of metadata.
    metadata: Extensions<Parse>,
    /// Certificate providers.
    certificate_providers: Extensions<Parse>,
    /// How those certificate providers are run that are executed.
    #[cfg(feature = "tls")]
    certificate_plugins: Extensions<StartPlugin>,
}

/// The extensions of one kind that an application has added, by type name. `P` is what the kind of extension needs of a type:
/// at least how its configuration is parsed.
#[derive(Clone)]
pub(super) struct Extensions<P>(BTreeMap<&'static str, Entry<P>>);

/// An extension, as it was added.
#[derive(Clone)]
struct Entry<P> {
    /// The typed configuration.
    of: TypeId,
    /// Parses the configuration.
    parser: P,
}

/// The parser of a kind of extension whose configurations are all [`Custom`].
pub(super) type Parse = fn(Payload, &Context<'_>) -> Result<Custom, Invalid>;

/// The parser of an audit logger.
type ParseAuditLogger = fn(Payload, &Context<'_>) -> Result<CustomAuditLogger, Invalid>;

impl Registry {
    /// A registry without extensions.
    pub const fn new() -> Self {
        Self {
            lb_policies: Extensions::new(),
            cluster_specifiers: Extensions::new(),
            http_filters: Extensions::new(),
            audit_loggers: Extensions::new(),
            metadata: Extensions::new(),
            certificate_providers: Extensions::new(),
            #[cfg(feature = "tls")]
            certificate_plugins: Extensions::new(),
        }
    }

    /// Adds a load balancing policy for the policy lists of clusters (A52), as a message or as a `TypedStruct`. It is parsed, for
    /// applications with load balancing of their own; a channel uses `round_robin` in its place, with a warning. See
    /// [`with_endpoint_policy`](Self::with_endpoint_policy).
    #[must_use]
    pub fn with_lb_policy<T: Extension>(mut self) -> Self {
        self.lb_policies.add::<T>(load_balancing::parse_custom::<T>);
        self
    }

    /// Adds a load balancing policy like [`with_lb_policy`](Self::with_lb_policy), which channels execute.
    #[must_use]
    pub fn with_endpoint_policy<T: EndpointPolicy>(mut self) -> Self {
        // It is another extension than `T` without execution, so that clients with one and the other are not shared.
        self.lb_policies.add_as(T::TYPE_NAME, TypeId::of::<(T,)>(), load_balancing::parse_executed::<T>);
        self
    }

    /// Adds a type of HTTP filter for listeners, with overrides in virtual hosts, routes and weighted clusters (A39). It is parsed, for
    /// applications that handle requests themselves; a channel leaves it out, with a warning. See `with_client_filter`.
    #[must_use]
    pub fn with_http_filter<T: HttpFilterExtension>(mut self) -> Self {
        self.http_filters.add::<T>(FilterType::custom::<T>());
        self
    }

    /// Adds a type of HTTP filter like [`with_http_filter`](Self::with_http_filter), which channels execute.
    #[cfg(feature = "channel")]
    #[must_use]
    pub fn with_client_filter<T: ClientFilter>(mut self) -> Self {
        // It is another extension than `T` without execution, so that clients with one and the other are not shared.
        self.http_filters.add_as(T::TYPE_NAME, TypeId::of::<(T,)>(), FilterType::executed::<T>());
        self
    }

    /// Adds a type of audit logger for the rules of RBAC filters (A59).
    #[must_use]
    pub fn with_audit_logger<T: AuditLoggerExtension>(mut self) -> Self {
        self.audit_loggers.add::<T>(CustomAuditLogger::parse::<T>);
        self
    }

    /// Adds a type of metadata: values of it, in the `typed_filter_metadata` of clusters, localities and endpoints, are parsed
    /// (A83), and one that cannot be parsed rejects the resource. See [`Metadata::custom`](super::Metadata::custom).
    #[must_use]
    pub fn with_metadata<T: Extension>(mut self) -> Self {
        self.metadata.add::<T>(Custom::parse::<T>);
        self
    }

    /// Adds a plugin for the bootstrap's `certificate_providers` (A29). Its name, the `plugin_name` there, is
    /// [`Extension::TYPE_NAME`], and its configuration comes as [`Payload::Struct`], empty if there is none. It is parsed when
    /// the client is built, and resources may name its instances from then on. `file_watcher` stays the crate's own. A channel has no
    /// certificates of it; see `with_certificate_plugin`.
    #[must_use]
    pub fn with_certificate_provider<T: Extension>(mut self) -> Self {
        self.certificate_providers.add::<T>(Custom::parse::<T>);
        #[cfg(feature = "tls")]
        self.certificate_plugins.remove(T::TYPE_NAME);
        self
    }

    /// Adds a certificate provider like [`with_certificate_provider`](Self::with_certificate_provider), which channels and servers
    /// execute.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_certificate_plugin<T: CertificateProviderPlugin>(mut self) -> Self {
        self.certificate_providers.add::<T>(Custom::parse::<T>);
        self.certificate_plugins.add::<T>(certificate_provider::start::<T>);
        self
    }

    /// Adds a cluster specifier plugin, which picks the cluster of each request on a route, for applications that handle requests
    /// themselves. Calls of channels on its routes fail, but for those of [`RouteLookup`](super::route_lookup::RouteLookup), which is known
    /// without a registration if the crate has channels (feature `channel`).
    #[must_use]
    pub fn with_cluster_specifier<T: Extension>(mut self) -> Self {
        self.cluster_specifiers.add::<T>(Custom::parse::<T>);
        self
    }

    /// The cluster specifier plugins of the application.
    pub(super) fn cluster_specifiers(&self) -> &Extensions<Parse> {
        &self.cluster_specifiers
    }

    /// The load balancing policies of the application, both executed and parsed ones.
    pub(super) fn lb_policies(&self) -> &Extensions<ParsePolicy> {
        &self.lb_policies
    }

    /// The HTTP filters of the application, both executed and parsed ones.
    pub(super) fn http_filters(&self) -> &Extensions<FilterType> {
        &self.http_filters
    }

    /// The audit loggers of the application.
    pub(super) fn audit_loggers(&self) -> &Extensions<ParseAuditLogger> {
        &self.audit_loggers
    }

    /// The types of `typed_filter_metadata` of the application.
    pub(super) fn metadata(&self) -> &Extensions<Parse> {
        &self.metadata
    }

    /// Returns how a certificate provider is run; `None` if it is not executed.
    #[cfg(feature = "tls")]
    pub(crate) fn certificate_plugin(&self, plugin_name: &str) -> Option<StartPlugin> {
        self.certificate_plugins.get(plugin_name).copied()
    }

    /// Parses the configuration of a certificate provider; `None` if there is no such plugin.
    pub(crate) fn parse_certificate_provider(
        &self,
        plugin_name: &str,
        config: Map<String, Value>,
    ) -> Option<Result<Custom, Invalid>> {
        // In an empty context: the bootstrap is no resource of any server.
        self.certificate_providers.parse(plugin_name, Payload::Struct(config), &Context::new()).ok()
    }
}

impl<P> Extensions<P> {
    /// No extensions.
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds an extension under its own type.
    fn add<T: Extension>(&mut self, parser: P) {
        self.add_as(T::TYPE_NAME, TypeId::of::<T>(), parser);
    }

    /// Adds an extension under a type, in place of an earlier one.
    fn add_as(&mut self, type_name: &'static str, of: TypeId, parser: P) {
        self.0.insert(type_name, Entry { of, parser });
    }

    /// Removes an extension.
    #[cfg(feature = "tls")]
    fn remove(&mut self, type_name: &str) {
        self.0.remove(type_name);
    }

    /// The extension of a type.
    pub(super) fn get(&self, type_name: &str) -> Option<&P> {
        self.0.get(type_name).map(|entry| &entry.parser)
    }

    /// In the order of type names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &P> {
        self.0.values().map(|entry| &entry.parser)
    }
}

impl Extensions<Parse> {
    /// Parses a configuration; returns the payload if its type is unknown.
    pub(super) fn parse(
        &self,
        type_name: &str,
        payload: Payload,
        cx: &Context<'_>,
    ) -> Result<Result<Custom, Invalid>, Payload> {
        match self.get(type_name) {
            Some(parse) => Ok(parse(payload, cx)),
            None => Err(payload),
        }
    }
}

impl<P> Default for Extensions<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Registries are equal if their extensions have the same types.
/// Clients with equal registries may be shared. The type of a configuration stands for its parser, as functions cannot be compared.
impl<P> PartialEq for Extensions<P> {
    fn eq(&self, other: &Self) -> bool {
        let types = |of: &Self| of.0.iter().map(|(name, entry)| (*name, entry.of)).collect::<Vec<_>>();
        types(self) == types(other)
    }
}

impl<P> fmt::Debug for Extensions<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
