//! The bootstrap: what a client knows before it receives anything.

use std::{collections::BTreeMap, sync::Arc};

use crate::name::{Additions, ResourceName};

use super::{
    AllowedGrpcService, Authority, CertificateProvider, ConfigError, ConfigSource, Node, Server, Sources,
    Template, UnknownAuthority, ValidationError, certificates::ParsePlugin, server::NamedServers,
};

mod builder;

pub use self::builder::{AuthorityBuilder, BootstrapBuilder, SourceBuilder};
pub(crate) use self::builder::{NO_SERVERS, foreign_template, full_type_url};

/// The bootstrap of a client: its management servers, its identity, and the templates of resource names.
///
/// It is valid and immutable. See [`config`](crate::config) for an example.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap {
    /// The servers of names without an authority, and of authorities without servers.
    sources: Sources,
    /// The authorities by name.
    authorities: BTreeMap<String, Authority>,
    /// For all other authorities.
    default_authority: Option<Authority>,
    /// What the client tells servers about itself.
    node: Node,
    /// Which context parameters are added to names.
    context: ContextParamKeys,
    /// The certificate providers by instance.
    certificate_providers: BTreeMap<String, CertificateProvider>,
    /// How names of listeners are made of targets without an authority.
    client_listener_template: Template,
    /// How servers make names of listeners of their addresses.
    server_listener_template: Option<Template>,
    /// The services that resources may name, by target.
    allowed_grpc_services: BTreeMap<String, AllowedGrpcService>,
    /// The servers that resources may name.
    named_servers: NamedServers,
    /// Names of the collections that replace wildcards, by type URL.
    collections: BTreeMap<String, ResourceName>,
    /// Fields without effect.
    warnings: Vec<ValidationError>,
}

/// The context parameters that a client adds to `xdstp:` names (rule X7). gRPC ignores these fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContextParamKeys {
    /// Keys of the node: each is one of [`Node::context_params`].
    pub(crate) node: Vec<String>,
    /// Features of the client.
    pub(crate) features: Vec<String>,
}

/// The parts of a bootstrap, validated one by one, before authorities get the default servers.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The sources of names without an authority, and of authorities without sources.
    pub(crate) sources: Sources,
    /// Authorities by name, without the defaults that they get.
    pub(crate) authorities: BTreeMap<String, AuthorityParts>,
    /// The servers of authorities without an entry; `None` rejects their names.
    pub(crate) default_authority: Option<AuthorityParts>,
    /// The identity of the client.
    pub(crate) node: Node,
    /// The context parameters that the client adds to names.
    pub(crate) context: ContextParamKeys,
    pub(crate) certificate_providers: BTreeMap<String, CertificateProvider>,
    /// `None` is the template `%s`.
    pub(crate) client_listener_template: Option<Template>,
    /// `None` if servers cannot ask for listeners by their addresses.
    pub(crate) server_listener_template: Option<Template>,
    /// The services that resources may name, by target, with the credentials for them.
    pub(crate) allowed_grpc_services: BTreeMap<String, AllowedGrpcService>,
    /// Servers for clients that follow the config sources of resources.
    pub(crate) named_servers: NamedServers,
    /// Names of the collections that replace wildcards, by type URL; only Envoy's format has them.
    pub(crate) collections: BTreeMap<String, ResourceName>,
    /// Ignored parts of the document.
    pub(crate) warnings: Vec<ValidationError>,
}

/// An authority as it is configured, before it gets the defaults.
#[derive(Debug)]
pub(crate) struct AuthorityParts {
    /// How names of listeners are made of targets; `None` is the default.
    pub(crate) template: Option<Template>,
    /// The servers; none are those of the bootstrap.
    pub(crate) sources: Sources,
    /// Whether only an unreachable server is replaced by the next one, and not one without a resource.
    pub(crate) fallback_on_reachability_only: bool,
}

impl Bootstrap {
    /// A builder of a bootstrap in code.
    pub fn builder() -> BootstrapBuilder {
        BootstrapBuilder::default()
    }

    /// The sources of old-style names and of authorities without their own sources, in order of preference (A71), for types
    /// without [their own sources](Self::sources_of).
    pub fn sources(&self) -> &[ConfigSource] {
        self.sources.all()
    }

    /// The sources of one type, in order of preference.
    pub fn sources_of(&self, type_url: &str) -> &[ConfigSource] {
        self.sources.of(type_url)
    }

    /// Whether sources differ between types.
    pub(crate) fn has_sources_by_type(&self) -> bool {
        self.tables().any(Sources::differ)
    }

    /// Iterates over all sources.
    pub(crate) fn all_sources(&self) -> impl Iterator<Item = &ConfigSource> {
        self.tables().flat_map(Sources::iter)
    }

    /// The servers of each authority, and then those of the bootstrap.
    fn tables(&self) -> impl Iterator<Item = &Sources> {
        let authorities = self.authorities.values().chain(&self.default_authority);
        authorities.map(|authority| &authority.sources).chain([&self.sources])
    }

    /// Iterates over the management servers among these sources, of all types.
    pub fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.sources.iter().filter_map(ConfigSource::server)
    }

    /// The authorities by name. The empty name is for resource names with the prefix `xdstp:///`.
    pub fn authorities(&self) -> &BTreeMap<String, Authority> {
        &self.authorities
    }

    /// The sources of names with an authority that is not one of the [authorities](Self::authorities)
    /// (`default_config_source`); without it such names are rejected.
    pub fn default_authority(&self) -> Option<&Authority> {
        self.default_authority.as_ref()
    }

    /// The identity of this client.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The keys of the [node](Self::node) that are added to the names of collections as context parameters, in the form
    /// of [`Node::context_params`].
    pub fn node_context_params(&self) -> &[String] {
        &self.context.node
    }

    /// The client features that are added to all `xdstp:` names as context parameters
    /// `xds.client_feature.<feature>=true`.
    pub fn client_feature_context_params(&self) -> &[String] {
        &self.context.features
    }

    /// The context parameters to add to names in requests (rule X7).
    pub(crate) fn additions(&self) -> Additions {
        let keys: Vec<_> = self.context.node.iter().map(String::as_str).collect();
        Additions::new(self.node.context_params(&keys), self.context.features.clone())
    }

    /// The certificate providers by the names of their instances.
    pub fn certificate_providers(&self) -> &BTreeMap<String, CertificateProvider> {
        &self.certificate_providers
    }

    /// The bootstrap with the certificate providers of registered plugins parsed; unchanged if there are none.
    /// Called once, when the client is built, since the plugins are in its registry. All problems are returned together.
    pub(crate) fn plug(self: Arc<Self>, parse: &ParsePlugin<'_>) -> Result<Arc<Self>, ConfigError> {
        let mut plugged = BTreeMap::new();
        let mut problems = Vec::new();
        for (instance, provider) in &self.certificate_providers {
            match provider.plug(parse) {
                None => {}
                Some(Ok(custom)) => drop(plugged.insert(instance.clone(), custom)),
                Some(Err(invalid)) => {
                    let e = invalid.at("config").at_key("certificate_providers", instance);
                    problems.push(ValidationError::new(e.path(), e.reason()));
                }
            }
        }
        if !problems.is_empty() {
            return Err(ConfigError::new(problems));
        }
        if plugged.is_empty() {
            return Ok(self);
        }
        // A copy: the bootstrap may be shared with clients that have other plugins.
        let mut bootstrap = Self::clone(&self);
        bootstrap.certificate_providers.extend(plugged);
        Ok(Arc::new(bootstrap))
    }

    /// The template of listener names for targets without an authority; `%s` by default.
    pub fn client_listener_template(&self) -> &Template {
        &self.client_listener_template
    }

    /// The template of listener names for servers, by their address.
    pub fn server_listener_template(&self) -> Option<&Template> {
        self.server_listener_template.as_ref()
    }

    /// The gRPC services that resources may refer to, by their target (A102).
    pub fn allowed_grpc_services(&self) -> &BTreeMap<String, AllowedGrpcService> {
        &self.allowed_grpc_services
    }

    /// Management servers by their names in config sources of resources (`cluster_name`, `cluster_names`), for
    /// clients that follow these.
    pub fn named_servers(&self) -> &BTreeMap<String, Arc<Server>> {
        &self.named_servers
    }

    /// The collection of a type that replaces the wildcard (`ResourceSelector::All`): `lds_resources_locator` and
    /// `cds_resources_locator` of Envoy's bootstrap.
    pub fn collection_of(&self, type_url: &str) -> Option<&ResourceName> {
        self.collections.get(type_url)
    }

    /// Ignored parts of the document, with their paths, such as unknown fields: the first 64 of them, and the number of the others as
    /// a last warning without a path.
    pub fn warnings(&self) -> &[ValidationError] {
        &self.warnings
    }

    /// The sources of a resource of a type, in order of preference: those of the authority for an `xdstp:` name, and those
    /// of the bootstrap for an old-style name. Empty if only other types have sources.
    ///
    /// # Errors
    ///
    /// The authority is not in the bootstrap, and the bootstrap has no default for others.
    pub fn sources_for(
        &self,
        name: &ResourceName,
        type_url: &str,
    ) -> Result<&[ConfigSource], UnknownAuthority> {
        match name.authority() {
            // A47-10.
            Some(authority) => self.authority(authority).map(|authority| authority.sources_of(type_url)),
            None => Ok(self.sources.of(type_url)),
        }
    }

    /// The configuration of an authority, or else the default one.
    pub(crate) fn authority(&self, name: &str) -> Result<&Authority, UnknownAuthority> {
        // X11, A47-11: without a default the name is an error, and never requested from the servers of others.
        let known = self.authorities.get(name).or(self.default_authority.as_ref());
        known.ok_or_else(|| UnknownAuthority { authority: name.to_owned() })
    }

    /// The template of listener names for targets with this authority.
    pub(super) fn template_of(&self, authority: &str) -> Result<Template, UnknownAuthority> {
        match self.authorities.get(authority) {
            Some(known) => Ok(known.client_listener_template().clone()),
            None => self.authority(authority).map(|_| Template::of_authority(authority)),
        }
    }

    /// Makes a bootstrap of valid parts.
    pub(crate) fn assemble(parts: Parts) -> Self {
        // A47-6: equal sources become one allocation, so that comparing them is comparing pointers for most.
        let mut known = Vec::new();
        let sources = parts.sources.share(&mut known);
        let mut authority = |name: &str, parts: AuthorityParts| Authority {
            template: parts.template.unwrap_or_else(|| Template::of_authority(name)),
            sources: match parts.sources.is_empty() {
                true => sources.clone(),
                false => parts.sources.share(&mut known),
            },
            fallback_on_reachability_only: parts.fallback_on_reachability_only,
        };
        let authorities = parts.authorities.into_iter();
        let authorities = authorities.map(|(name, parts)| (name.clone(), authority(&name, parts))).collect();
        // Its template is never used: that of an authority without an entry is made of the name of the authority (`template_of`).
        let default_authority = parts.default_authority.map(|parts| authority("", parts));
        Self {
            sources,
            authorities,
            default_authority,
            node: parts.node,
            context: parts.context,
            certificate_providers: parts.certificate_providers,
            client_listener_template: parts.client_listener_template.unwrap_or_else(Template::verbatim),
            server_listener_template: parts.server_listener_template,
            allowed_grpc_services: parts.allowed_grpc_services,
            named_servers: parts.named_servers,
            collections: parts.collections,
            warnings: parts.warnings,
        }
    }
}

impl ContextParamKeys {
    /// Checks the parts; errors have the paths of gRPC's JSON format.
    pub(crate) fn check(&self) -> Vec<ValidationError> {
        let unknown = self.node.iter().enumerate().filter(|(_, key)| !Node::is_context_param(key));
        let unknown = unknown.map(|(index, key)| {
            let reason = format!(
                "{key:?} is no part of a node, such as \"id\", \"locality.zone\" or \"metadata.team\""
            );
            ValidationError::new(format!("node_context_params[{index}]"), reason)
        });
        let empty = self.features.iter().enumerate().filter(|(_, feature)| feature.is_empty());
        let empty = empty.map(|(index, _)| {
            ValidationError::new(format!("client_feature_context_params[{index}]"), "empty")
        });
        unknown.chain(empty).collect()
    }
}
