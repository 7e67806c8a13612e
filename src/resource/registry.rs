//! The extensions of an application.

use std::{any::TypeId, collections::BTreeMap, fmt};

use serde_json::{Map, Value};

use super::{
    Context, Invalid,
    extension::{Custom, Extension, Payload},
    http_filter::{FilterTypes, HttpFilterExtension},
};

/// The extensions of an application, in addition to the built-in ones. An extension with the type name of a built-in one
/// replaces it.
///
/// Resources with an unknown extension are rejected, or accepted without it, by the rules of each kind of extension.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registry {
    lb_policies: Parsers,
    cluster_specifiers: Parsers,
    http_filters: FilterTypes,
    audit_loggers: Parsers,
    metadata: Parsers,
    certificate_providers: Parsers,
}

/// How configurations of one kind are parsed, by type name.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Parsers(BTreeMap<&'static str, Parser>);

#[derive(Clone, Copy)]
struct Parser {
    /// Of the typed configuration.
    of: TypeId,
    parse: fn(Payload, &Context<'_>) -> Result<Custom, Invalid>,
}

impl Registry {
    /// A registry without extensions.
    pub const fn new() -> Self {
        Self {
            lb_policies: Parsers::new(),
            cluster_specifiers: Parsers::new(),
            http_filters: FilterTypes::new(),
            audit_loggers: Parsers::new(),
            metadata: Parsers::new(),
            certificate_providers: Parsers::new(),
        }
    }

    /// Adds a load balancing policy for the policy lists of clusters (A52), as a message or as a `TypedStruct`.
    #[must_use]
    pub fn with_lb_policy<T: Extension>(mut self) -> Self {
        self.lb_policies.add::<T>();
        self
    }

    /// Adds a type of HTTP filter for listeners, with overrides in virtual hosts, routes and weighted clusters (A39).
    #[must_use]
    pub fn with_http_filter<T: HttpFilterExtension>(mut self) -> Self {
        self.http_filters.add::<T>();
        self
    }

    /// Adds a type of audit logger for the rules of RBAC filters (A59).
    #[must_use]
    pub fn with_audit_logger<T: Extension>(mut self) -> Self {
        self.audit_loggers.add::<T>();
        self
    }

    /// Adds a type of metadata: values of it, in the `typed_filter_metadata` of clusters, localities and endpoints, are parsed
    /// (A83), and one that cannot be parsed rejects the resource. See [`Metadata::custom`](super::Metadata::custom).
    #[must_use]
    pub fn with_metadata<T: Extension>(mut self) -> Self {
        self.metadata.add::<T>();
        self
    }

    /// Adds a plugin for the bootstrap's `certificate_providers` (A29). Its name, the `plugin_name` there, is
    /// [`Extension::TYPE_NAME`], and its configuration comes as [`Payload::Struct`], empty if there is none. It is parsed when
    /// the client is built, and resources may name its instances from then on. `file_watcher` stays the crate's own.
    #[must_use]
    pub fn with_certificate_provider<T: Extension>(mut self) -> Self {
        self.certificate_providers.add::<T>();
        self
    }

    /// Adds a cluster specifier plugin, which picks the cluster of each request on a route.
    #[must_use]
    pub fn with_cluster_specifier<T: Extension>(mut self) -> Self {
        self.cluster_specifiers.add::<T>();
        self
    }

    pub(super) fn cluster_specifiers(&self) -> &Parsers {
        &self.cluster_specifiers
    }

    pub(super) fn lb_policies(&self) -> &Parsers {
        &self.lb_policies
    }

    pub(super) fn http_filters(&self) -> &FilterTypes {
        &self.http_filters
    }

    pub(super) fn audit_loggers(&self) -> &Parsers {
        &self.audit_loggers
    }

    pub(super) fn metadata(&self) -> &Parsers {
        &self.metadata
    }

    /// Parses the configuration of a certificate provider; `None` if there is no such plugin.
    pub(crate) fn parse_certificate_provider(
        &self,
        plugin_name: &str,
        config: Map<String, Value>,
    ) -> Option<Result<Custom, Invalid>> {
        self.certificate_providers.parse((plugin_name, Payload::Struct(config)), &Context::new()).ok()
    }
}

impl Parsers {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn add<T: Extension>(&mut self) {
        self.0.insert(T::TYPE_NAME, Parser { of: TypeId::of::<T>(), parse: Custom::parse::<T> });
    }

    /// Parses a configuration; gives the payload back if its type is not known here.
    pub(super) fn parse(
        &self,
        (type_name, payload): (&str, Payload),
        cx: &Context<'_>,
    ) -> Result<Result<Custom, Invalid>, Payload> {
        match self.0.get(type_name) {
            Some(parser) => Ok((parser.parse)(payload, cx)),
            None => Err(payload),
        }
    }
}

impl PartialEq for Parser {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

impl fmt::Debug for Parsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
