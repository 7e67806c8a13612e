//! Builders of bootstraps, for applications that have no file.

use std::collections::BTreeMap;

mod sources;

pub use self::sources::SourceBuilder;
pub(crate) use self::sources::full_type_url;

use self::sources::SourcesBuilder;
use super::{AuthorityParts, Bootstrap, ContextParamKeys, Parts};
use crate::{
    base::TypeUrl,
    config::{
        AllowedGrpcService, CertificateProvider, ChannelCredentials, ConfigError, Node, ServerBuilder,
        Template, ValidationError, credentials::FilesError,
    },
};

/// A builder of a [`Bootstrap`] in code. All errors are reported together by [`build`](Self::build).
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct BootstrapBuilder {
    /// The sources of names without authority.
    sources: SourcesBuilder,
    /// The authorities by name.
    authorities: BTreeMap<String, AuthorityBuilder>,
    /// The authority in place of those that have no entry.
    default_authority: Option<AuthorityBuilder>,
    /// The node of the client.
    node: Node,
    /// The parameters of names that stem from the client.
    context: ContextParamKeys,
    /// The instances of certificate providers, by name.
    certificate_providers: BTreeMap<String, CertificateProvider>,
    /// The text of the template, which `build` parses, so that all problems are reported together.
    client_listener_template: Option<String>,
    server_listener_template: Option<String>,
    /// The services that resources may name by their targets.
    allowed_grpc_services: BTreeMap<String, AllowedGrpcService>,
    /// The servers that resources may name, by name.
    named_servers: BTreeMap<String, ServerBuilder>,
}

/// A builder of an authority. By default it has the servers of the bootstrap, and the template
/// `xdstp://<authority>/envoy.config.listener.v3.Listener/%s` for its listeners.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it is given to a bootstrap's"]
pub struct AuthorityBuilder {
    /// The servers.
    sources: SourcesBuilder,
    /// How names of listeners are made of targets.
    template: Option<String>,
    /// Whether only an unreachable server is replaced by the next one.
    fallback_on_reachability_only: bool,
}

impl BootstrapBuilder {
    /// Adds a server, as a fallback for those added before (A71).
    pub fn server(mut self, server: ServerBuilder) -> Self {
        self.sources.all.push(server);
        self
    }

    /// Adds a source for a single type, as a fallback for those added for it before. The [servers](Self::server) are
    /// not used for a type with its own sources. Without any server, routes are requested from the source of
    /// listeners, and endpoints from the source of clusters, if these are servers.
    ///
    /// ```
    /// use xdskit::config::{ApiType, Bootstrap, PathSource, Server};
    /// use xdskit::resource::{Cluster, ClusterLoadAssignment};
    ///
    /// let bootstrap = Bootstrap::builder()
    ///     .server(Server::new("http://127.0.0.1:18000"))
    ///     .source_for::<Cluster>(PathSource::new("/etc/xds/clusters.yaml"))
    ///     .source_for::<ClusterLoadAssignment>(Server::new("http://127.0.0.1:18001").api_type(ApiType::Grpc))
    ///     .build()?;
    /// # Ok::<(), xdskit::config::ConfigError>(())
    /// ```
    pub fn source_for<T: TypeUrl>(mut self, source: impl Into<SourceBuilder>) -> Self {
        self.sources.add(T::type_url(), source.into());
        self
    }

    /// Sets the identity of this client.
    pub fn node(mut self, node: Node) -> Self {
        self.node = node;
        self
    }

    /// Adds properties of the node to the names of `xdstp:` collections, as context parameters `xds.node.<key>`. The keys
    /// are those of [`Node::context_params`], such as `id`, `cluster`, `locality.zone` or `metadata.team`.
    pub fn node_context_params<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.context.node = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Adds features of the client to all `xdstp:` names, by context parameters `xds.client_feature.<feature>=true`.
    pub fn client_feature_context_params<F: Into<String>>(
        mut self,
        features: impl IntoIterator<Item = F>,
    ) -> Self {
        self.context.features = features.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an authority. The empty name is for resource names with the prefix `xdstp:///`.
    pub fn authority(mut self, name: impl Into<String>, authority: AuthorityBuilder) -> Self {
        self.authorities.insert(name.into(), authority);
        self
    }

    /// Sets the sources of names with any authority that was not [added](Self::authority) (`default_config_source`).
    /// Without it such names are rejected. Its template is ignored.
    pub fn default_authority(mut self, authority: AuthorityBuilder) -> Self {
        self.default_authority = Some(authority);
        self
    }

    /// Adds an instance of a certificate provider by its name in resources.
    pub fn certificate_provider(
        mut self,
        instance: impl Into<String>,
        provider: CertificateProvider,
    ) -> Self {
        self.certificate_providers.insert(instance.into(), provider);
        self
    }

    /// Sets the template for targets without an authority (A47); `%s` by default.
    pub fn client_listener_template(mut self, template: impl Into<String>) -> Self {
        self.client_listener_template = Some(template.into());
        self
    }

    /// Sets the template for the listeners of servers (A36); there is no default.
    pub fn server_listener_template(mut self, template: impl Into<String>) -> Self {
        self.server_listener_template = Some(template.into());
        self
    }

    /// Permits resources to refer to a gRPC service, by its target (A102).
    pub fn allowed_grpc_service(mut self, target: impl Into<String>, service: AllowedGrpcService) -> Self {
        self.allowed_grpc_services.insert(target.into(), service);
        self
    }

    /// Adds a server by its name in config sources of resources (`cluster_name`), for clients that follow these.
    pub fn named_server(mut self, name: impl Into<String>, server: ServerBuilder) -> Self {
        self.named_servers.insert(name.into(), server);
        self
    }

    /// Validates and builds the bootstrap.
    ///
    /// # Errors
    ///
    /// All errors, with their paths in gRPC's JSON format.
    pub fn build(self) -> Result<Bootstrap, ConfigError> {
        let mut problems = Vec::new();
        if self.sources.is_empty() {
            problems.push(ValidationError::new("xds_servers", NO_SERVERS));
        }
        self.check_files(&mut problems);
        problems.extend(self.context.check());
        let parts = Parts {
            sources: self.sources.build("", &mut problems),
            authorities: self
                .authorities
                .into_iter()
                .map(|(name, authority)| {
                    let parts = authority.build(&name, &mut problems);
                    (name, parts)
                })
                .collect(),
            default_authority: self
                .default_authority
                .map(|authority| authority.build_at(None, "default_authority", &mut problems)),
            node: self.node,
            context: self.context,
            certificate_providers: self.certificate_providers,
            client_listener_template: template(
                self.client_listener_template,
                "client_default_listener_resource_name_template",
                &mut problems,
            ),
            server_listener_template: template(
                self.server_listener_template,
                "server_listener_resource_name_template",
                &mut problems,
            ),
            allowed_grpc_services: self.allowed_grpc_services,
            named_servers: self
                .named_servers
                .into_iter()
                .filter_map(|(name, server)| {
                    let path = format!("named_servers[{name:?}]");
                    Some((name, server.build_at(&path, &mut problems)?.into()))
                })
                .collect(),
            // Collections in place of wildcards, and warnings, are of Envoy's format alone.
            ..Parts::default()
        };
        if problems.is_empty() { Ok(Bootstrap::assemble(parts)) } else { Err(ConfigError::new(problems)) }
    }

    /// Checks the settings of certificate files.
    fn check_files(&self, problems: &mut Vec<ValidationError>) {
        // The files of servers are checked by their own builders, with the path of each server.
        for (instance, provider) in &self.certificate_providers {
            if let CertificateProvider::FileWatcher(config) = provider {
                let path = format!("certificate_providers[{instance:?}].config");
                problems.extend(config.check().err().map(|error| error.at(&path)));
            }
        }
        for (target, service) in &self.allowed_grpc_services {
            if let ChannelCredentials::Tls(config) = &service.channel_credentials {
                let path = format!("allowed_grpc_services[{target:?}].channel_creds[0].config");
                problems.extend(config.check().err().map(|error| error.at(&path)));
            }
        }
    }
}

impl AuthorityBuilder {
    /// Adds a server of the authority, as a fallback for those added before.
    pub fn server(mut self, server: ServerBuilder) -> Self {
        self.sources.all.push(server);
        self
    }

    /// Adds a source of the authority for a single type; see [`BootstrapBuilder::source_for`].
    pub fn source_for<T: TypeUrl>(mut self, source: impl Into<SourceBuilder>) -> Self {
        self.sources.add(T::type_url(), source.into());
        self
    }

    /// Sets the template for the listeners of targets with this authority. It must start with `xdstp://<authority>/`.
    pub fn client_listener_template(mut self, template: impl Into<String>) -> Self {
        self.template = Some(template.into());
        self
    }

    /// Falls back to the next server only when one is unreachable (A95).
    pub fn fallback_on_reachability_only(mut self) -> Self {
        self.fallback_on_reachability_only = true;
        self
    }

    /// Builds an authority of a name.
    fn build(self, name: &str, problems: &mut Vec<ValidationError>) -> AuthorityParts {
        self.build_at(Some(name), &format!("authorities[{name:?}]"), problems)
    }

    /// Builds an authority; `path` is that of its problems.
    fn build_at(self, name: Option<&str>, path: &str, problems: &mut Vec<ValidationError>) -> AuthorityParts {
        let template_path = format!("{path}.client_listener_resource_name_template");
        let template = template(self.template, &template_path, problems);
        // A47-5: names that are made of it would otherwise be requested from the servers of another authority.
        if let Some(name) = name.filter(|name| template.as_ref().is_some_and(|own| !own.belongs_to(name))) {
            problems.push(ValidationError::new(template_path, foreign_template(name)));
        }
        AuthorityParts {
            template,
            sources: self.sources.build(&format!("{path}."), problems),
            fallback_on_reachability_only: self.fallback_on_reachability_only,
        }
    }
}

impl FilesError {
    /// The problem at the path of the settings.
    pub(crate) fn at(self, path: &str) -> ValidationError {
        let separator = if self.field.is_empty() { "" } else { "." };
        ValidationError::new(format!("{path}{separator}{}", self.field), self.reason)
    }
}

/// The error of a template whose names have another authority.
pub(crate) fn foreign_template(authority: &str) -> String {
    let prefix = Template::of_authority(authority);
    let prefix = prefix.as_str().trim_end_matches("envoy.config.listener.v3.Listener/%s");
    format!("must start with {prefix:?}")
}

/// Parses a template.
fn template(text: Option<String>, path: &str, problems: &mut Vec<ValidationError>) -> Option<Template> {
    Template::parse(&text?).map_err(|error| problems.push(ValidationError::new(path, error.to_string()))).ok()
}

/// The problem of an empty list of servers.
pub(crate) const NO_SERVERS: &str = "must have at least one server";
