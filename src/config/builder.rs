use std::collections::BTreeMap;

use super::{
    AllowedGrpcService, ApiType, Bootstrap, CallCredentials, CertificateProvider, ChannelCredentials,
    ConfigError, Node, Problem, Server, ServerFeatures, ServerUri, Template, TlsConfig,
    bootstrap::{AuthorityParts, ContextParamKeys, Parts},
    credentials::FilesError,
    uri::Security,
};

/// Makes a [`Bootstrap`] in code. Mistakes are collected and told at the end, all of them.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct BootstrapBuilder {
    servers: Vec<ServerBuilder>,
    authorities: BTreeMap<String, AuthorityBuilder>,
    node: Node,
    context: ContextParamKeys,
    certificate_providers: BTreeMap<String, CertificateProvider>,
    client_listener_template: Option<String>,
    server_listener_template: Option<String>,
    allowed_grpc_services: BTreeMap<String, AllowedGrpcService>,
}

/// An authority in the making. By default it has the bootstrap's servers and
/// `xdstp://<authority>/envoy.config.listener.v3.Listener/%s` for its listeners.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it is given to a bootstrap's"]
pub struct AuthorityBuilder {
    servers: Vec<ServerBuilder>,
    template: Option<String>,
    fallback_on_reachability_only: bool,
}

/// A server in the making; see [`Server::new`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is given to a bootstrap's, or `build`"]
pub struct ServerBuilder {
    uri: String,
    channel_credentials: Option<ChannelCredentials>,
    call_credentials: Vec<CallCredentials>,
    features: ServerFeatures,
    api_type: Option<ApiType>,
}

impl BootstrapBuilder {
    /// Adds a server after those that were added before; a later one is used while those before it fail (A71).
    pub fn server(mut self, server: ServerBuilder) -> Self {
        self.servers.push(server);
        self
    }

    /// Sets who this client says it is.
    pub fn node(mut self, node: Node) -> Self {
        self.node = node;
        self
    }

    /// Adds the node to the names of `xdstp:` collections, by context parameters `xds.node.<key>` (rule C7). Keys are those
    /// that [`Node::context_params`] takes, such as `id`, `cluster`, `locality.zone` or `metadata.team`.
    pub fn node_context_params<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.context.node = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Adds features of the client to all `xdstp:` names, by context parameters `xds.client_feature.<feature>=true` (rule
    /// C7).
    pub fn client_feature_context_params<F: Into<String>>(
        mut self,
        features: impl IntoIterator<Item = F>,
    ) -> Self {
        self.context.features = features.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an authority. The empty name is that of names which start with `xdstp:///`.
    pub fn authority(mut self, name: impl Into<String>, authority: AuthorityBuilder) -> Self {
        self.authorities.insert(name.into(), authority);
        self
    }

    /// Adds a certificate provider under the name that resources use for it.
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

    /// Lets resources name a gRPC service (A102), by its target.
    pub fn allowed_grpc_service(mut self, target: impl Into<String>, service: AllowedGrpcService) -> Self {
        self.allowed_grpc_services.insert(target.into(), service);
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// All problems, with the paths that they would have in gRPC's JSON.
    pub fn build(self) -> Result<Bootstrap, ConfigError> {
        let mut problems = Vec::new();
        if self.servers.is_empty() {
            problems.push(Problem::new("xds_servers", NO_SERVERS));
        }
        self.check_files(&mut problems);
        problems.extend(self.context.check());
        let parts = Parts {
            servers: build_servers(self.servers, "xds_servers", &mut problems),
            authorities: self
                .authorities
                .into_iter()
                .map(|(name, authority)| {
                    let parts = authority.build(&name, &mut problems);
                    (name, parts)
                })
                .collect(),
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
        };
        if problems.is_empty() { Ok(Bootstrap::assemble(parts)) } else { Err(ConfigError::new(problems)) }
    }

    fn check_files(&self, problems: &mut Vec<Problem>) {
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
    /// Adds a server of the authority's own.
    pub fn server(mut self, server: ServerBuilder) -> Self {
        self.servers.push(server);
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

    fn build(self, name: &str, problems: &mut Vec<Problem>) -> AuthorityParts {
        let path = format!("authorities[{name:?}]");
        let template_path = format!("{path}.client_listener_resource_name_template");
        let template = template(self.template, &template_path, problems);
        if template.as_ref().is_some_and(|template| !template.belongs_to(name)) {
            problems.push(Problem::new(template_path, foreign_template(name)));
        }
        AuthorityParts {
            template,
            servers: build_servers(self.servers, &format!("{path}.xds_servers"), problems),
            fallback_on_reachability_only: self.fallback_on_reachability_only,
        }
    }
}

impl ServerBuilder {
    pub(super) fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            channel_credentials: None,
            call_credentials: Vec::new(),
            features: ServerFeatures::default(),
            api_type: None,
        }
    }

    /// Connects in plain text.
    pub fn insecure(mut self) -> Self {
        self.channel_credentials = Some(ChannelCredentials::Insecure);
        self
    }

    /// Connects with TLS.
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.channel_credentials = Some(ChannelCredentials::Tls(config));
        self
    }

    /// Adds credentials that go with each call.
    pub fn call_credentials(mut self, credentials: CallCredentials) -> Self {
        self.call_credentials.push(credentials);
        self
    }

    /// Asks for features, by the names that they have in a bootstrap's `server_features`; unknown ones are ignored.
    pub fn features<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.features = names.into_iter().collect();
        self
    }

    /// Sets the variant of the protocol to speak with this server.
    pub fn api_type(mut self, api_type: ApiType) -> Self {
        self.api_type = Some(api_type);
        self
    }

    /// Checks the server alone.
    ///
    /// # Errors
    ///
    /// A URI that is not understood or contradicts the credentials, credentials that are missing or incomplete.
    pub fn build(self) -> Result<Server, ConfigError> {
        let mut problems = Vec::new();
        match self.build_at("server", &mut problems) {
            Some(server) => Ok(server),
            None => Err(ConfigError::new(problems)),
        }
    }

    /// `None` exactly if a problem was added.
    fn build_at(self, path: &str, problems: &mut Vec<Problem>) -> Option<Server> {
        let before = problems.len();
        let uri_path = format!("{path}.server_uri");
        let uri = match self.uri.parse::<ServerUri>() {
            Ok(uri) => Some(uri),
            Err(error) => {
                problems.push(Problem::new(&uri_path, error.to_string()));
                None
            }
        };
        let implied = || match uri.as_ref()?.security()? {
            Security::Plain => Some(ChannelCredentials::Insecure),
            Security::Tls => Some(ChannelCredentials::Tls(TlsConfig::default())),
        };
        let credentials = self.channel_credentials.or_else(implied);
        match &credentials {
            Some(ChannelCredentials::Tls(config)) => {
                let path = format!("{path}.channel_creds[0].config");
                problems.extend(config.check().err().map(|error| error.at(&path)));
            }
            Some(ChannelCredentials::Insecure) => {}
            None if uri.is_none() => {}
            None => problems.push(Problem::new(
                format!("{path}.channel_creds"),
                "missing: say `insecure()` or `tls(..)`, or begin the URI with http:// or https://",
            )),
        }
        let (uri, channel_credentials) = uri.zip(credentials)?;
        if let Err(reason) = Server::check_scheme(&uri, &channel_credentials) {
            problems.push(Problem::new(uri_path, reason));
        }
        (problems.len() == before).then_some(Server {
            uri,
            channel_credentials,
            call_credentials: self.call_credentials,
            features: self.features,
            api_type: self.api_type,
        })
    }
}

impl FilesError {
    pub(crate) fn at(self, path: &str) -> Problem {
        let separator = if self.field.is_empty() { "" } else { "." };
        Problem::new(format!("{path}{separator}{}", self.field), self.reason)
    }
}

/// What is wrong with a template of another authority's names.
pub(crate) fn foreign_template(authority: &str) -> String {
    let prefix = Template::of_authority(authority);
    let prefix = prefix.as_str().trim_end_matches("envoy.config.listener.v3.Listener/%s");
    format!("must start with {prefix:?}")
}

fn build_servers(servers: Vec<ServerBuilder>, path: &str, problems: &mut Vec<Problem>) -> Vec<Server> {
    let built = servers.into_iter().enumerate();
    built.filter_map(|(index, server)| server.build_at(&format!("{path}[{index}]"), problems)).collect()
}

fn template(text: Option<String>, path: &str, problems: &mut Vec<Problem>) -> Option<Template> {
    Template::parse(&text?).map_err(|error| problems.push(Problem::new(path, error.to_string()))).ok()
}

pub(crate) const NO_SERVERS: &str = "must have at least one server";
