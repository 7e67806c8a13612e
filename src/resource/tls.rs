//! TLS between the application and its peers (A29, A82, A101).
//!
//! These messages never contain keys and certificates: they name *certificate provider instances*, which the
//! bootstrap defines. Unsupported fields are only skipped if that does not weaken security (A29-8).

#[cfg(feature = "tls")]
pub(crate) mod certificate_provider;

use std::net::IpAddr;

use serde::Serialize;

use super::{
    Context, Invalid,
    matcher::{StringMatcher, StringPattern},
    parts, remarks, unexecuted,
};
use crate::pb::envoy::{
    config::core::v3::{self as core, transport_socket::ConfigType},
    extensions::transport_sockets::tls::v3::{
        self as tls, CommonTlsContext,
        common_tls_context::{CertificateProviderInstance, ValidationContextType},
    },
};

#[cfg(feature = "tls")]
pub use self::certificate_provider::{
    CertificateIdentity, CertificateProviderPlugin, CertificatePublisher, CertificateRoots, MaterialError,
    ProviderRun,
};

/// TLS settings of connections to the endpoints of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UpstreamTls {
    /// The provider of the client's certificate and key; `None` is TLS without a client certificate.
    pub identity: Option<ProviderInstance>,
    /// The source of the CA certificates for the server's certificate.
    pub roots: Roots,
    /// Matchers of the names in the server's certificate, one of which must match; empty accepts all.
    pub san_matchers: Box<[SanMatcher]>,
    /// The server name to send (SNI) unless `auto_host_sni` provides one: at most 255 bytes, `None` for none (A101).
    pub sni: Option<Box<str>>,
    /// Whether the server name to send is the endpoint's hostname, if it has one (A101).
    pub auto_host_sni: bool,
    /// Whether the server's certificate must be valid for the server name that was sent, in place of `san_matchers`
    /// (A101).
    pub auto_sni_san_validation: bool,
}

/// TLS settings of connections from the clients of a listener. Channels have no use for them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DownstreamTls {
    /// The provider of the server's certificate and key.
    pub identity: ProviderInstance,
    /// The provider of the CA certificates for client certificates; `None` ignores client certificates.
    pub roots: Option<ProviderInstance>,
    /// Whether clients without a certificate are rejected; only set if there are `roots`.
    pub require_client_certificate: bool,
}

/// A certificate provider instance of the bootstrap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProviderInstance {
    /// The name, a key of the bootstrap's `certificate_providers`.
    pub instance_name: Box<str>,
    /// The name of a certificate of the instance; may be empty.
    pub certificate_name: Box<str>,
}

/// The source of CA certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Roots {
    /// A certificate provider instance.
    Provider(ProviderInstance),
    /// The operating system (A82).
    System,
}

/// A matcher for the subject alternative names of a certificate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SanMatcher {
    /// The type of names to match; `None` is all types.
    pub san_type: Option<SanType>,
    /// The condition on the name.
    pub matcher: StringMatcher,
}

/// The type of a subject alternative name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are X.509's own")]
pub enum SanType {
    Email,
    Dns,
    Uri,
    IpAddress,
}

impl UpstreamTls {
    /// Returns the server name to send to an endpoint (A101): with `auto_host_sni` its hostname without the port, if
    /// it has one; otherwise `sni`. `None` sends none: a name that is an address is not sent.
    pub fn server_name<'a>(&'a self, hostname: Option<&'a str>) -> Option<&'a str> {
        // CH7.12: RFC 6066 permits no addresses in SNI.
        let host = hostname.map(without_port).filter(|host| self.auto_host_sni && !host.is_empty());
        host.or(self.sni.as_deref()).filter(|name| name.parse::<IpAddr>().is_err())
    }

    /// Returns whether a server certificate with these names is accepted, apart from its signature (A101). `sent`
    /// is the server name that was sent, see [`server_name`](Self::server_name).
    ///
    /// With `auto_sni_san_validation` and a server name that was sent, one of the DNS names must match it. Otherwise
    /// one of the names must match one of `san_matchers`, if there are any.
    pub fn accepts_names<'a>(
        &self,
        sent: Option<&str>,
        names: impl IntoIterator<Item = (SanType, &'a str)>,
    ) -> bool {
        let mut names = names.into_iter();
        match sent.filter(|_| self.auto_sni_san_validation) {
            Some(sent) => names.any(|(san_type, name)| san_type == SanType::Dns && is_for(name, sent)),
            None if self.san_matchers.is_empty() => true,
            None => {
                names.any(|(san_type, name)| self.san_matchers.iter().any(|one| one.matches(san_type, name)))
            }
        }
    }

    /// Rules C20, C22, C23 and T1 to T17. The name of the `TransportSocket` is ignored: no proposal gives it a
    /// meaning for clusters, and C-core does not check it.
    pub(super) fn parse(socket: &core::TransportSocket, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message: tls::UpstreamTlsContext = typed_config(socket, UPSTREAM)?;
        if let Some(ConfigType::TypedConfig(any)) = &socket.config_type {
            remarks::scan(&unexecuted::UPSTREAM_TLS_CONTEXT, &any.value);
        }
        Self::from_message(message, cx).map_err(|e| e.at("typed_config"))
    }

    /// Validates the TLS settings of a cluster.
    fn from_message(message: tls::UpstreamTlsContext, cx: &Context<'_>) -> Result<Self, Invalid> {
        let common =
            message.common_tls_context.ok_or_else(|| Invalid::field("common_tls_context", "must be set"))?;
        let common = Common::parse(common, cx).map_err(|e| e.at("common_tls_context"))?;
        let roots = match (common.roots, common.system_roots) {
            // T14: a provider takes precedence over the roots of the system.
            (Some(provider), _) => Roots::Provider(provider),
            (None, true) => Roots::System,
            (None, false) => {
                let reason =
                    "needs a validation_context with ca_certificate_provider_instance or system_root_certs";
                return Err(Invalid::field("common_tls_context", reason));
            }
        };
        if message.sni.len() > MAX_SNI {
            let reason = format!("must be at most {MAX_SNI} bytes, is {}", message.sni.len());
            return Err(Invalid::field("sni", reason));
        }
        Ok(Self {
            identity: common.identity,
            roots,
            san_matchers: common.san_matchers,
            sni: (!message.sni.is_empty()).then(|| message.sni.into()),
            auto_host_sni: message.auto_host_sni,
            auto_sni_san_validation: message.auto_sni_san_validation,
        })
    }
}

impl DownstreamTls {
    /// Rules S27 to S35 and T1 to T17. The name of the `TransportSocket` is checked for servers (A29).
    pub(super) fn parse(socket: &core::TransportSocket, cx: &Context<'_>) -> Result<Self, Invalid> {
        if socket.name != TLS_SOCKET {
            return Err(Invalid::field("name", format!("must be {TLS_SOCKET:?}, is {:?}", socket.name)));
        }
        let message: tls::DownstreamTlsContext = typed_config(socket, DOWNSTREAM)?;
        Self::from_message(message, cx).map_err(|e| e.at("typed_config"))
    }

    /// Validates the TLS settings of a listener.
    fn from_message(message: tls::DownstreamTlsContext, cx: &Context<'_>) -> Result<Self, Invalid> {
        // CH7.24: validated for servers that use this crate; a channel never reads it.
        if message.require_sni.is_some_and(|require| require.value) {
            return Err(unsupported("require_sni"));
        }
        if message.ocsp_staple_policy != tls::downstream_tls_context::OcspStaplePolicy::LenientStapling as i32
        {
            return Err(Invalid::field("ocsp_staple_policy", "only LENIENT_STAPLING is supported"));
        }
        let common =
            message.common_tls_context.ok_or_else(|| Invalid::field("common_tls_context", "must be set"))?;
        let common = Common::parse(common, cx).map_err(|e| e.at("common_tls_context"))?;
        let identity = common.identity.ok_or_else(|| {
            Invalid::field("tls_certificate_provider_instance", "must be set").at("common_tls_context")
        })?;
        if let Some(context) = common.context {
            let at = |field, reason| Invalid::field(field, reason).at(context).at("common_tls_context");
            if !common.san_matchers.is_empty() {
                return Err(at("match_subject_alt_names", "is not supported for listeners"));
            }
            if common.roots.is_none() {
                // Even with system_root_certs, which are not supported for servers (T13).
                return Err(at("ca_certificate_provider_instance", "must be set"));
            }
        }
        let require_client_certificate =
            message.require_client_certificate.is_some_and(|require| require.value);
        if require_client_certificate && common.roots.is_none() {
            let reason = "needs a validation_context to check the certificates";
            return Err(Invalid::field("require_client_certificate", reason));
        }
        Ok(Self { identity, roots: common.roots, require_client_certificate })
    }
}

impl ProviderInstance {
    /// Checks that the bootstrap has the provider.
    fn parse(instance_name: String, certificate_name: String, cx: &Context<'_>) -> Result<Self, Invalid> {
        if !cx.has_certificate_provider(&instance_name) {
            let reason = format!("the bootstrap has no usable certificate provider {instance_name:?}");
            return Err(Invalid::field("instance_name", reason));
        }
        Ok(Self { instance_name: instance_name.into(), certificate_name: certificate_name.into() })
    }

    /// Parses a reference to a provider.
    pub(super) fn of_plugin(
        from: tls::CertificateProviderPluginInstance,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        Self::parse(from.instance_name, from.certificate_name, cx)
    }

    /// Reads the same reference in the older message.
    fn of_instance(from: CertificateProviderInstance, cx: &Context<'_>) -> Result<Self, Invalid> {
        Self::parse(from.instance_name, from.certificate_name, cx)
    }
}

/// The settings common to clients and servers.
struct Common {
    /// The own certificate.
    identity: Option<ProviderInstance>,
    /// The path of the validation context, if there is one.
    context: Option<&'static str>,
    /// The certificates of authorities.
    roots: Option<ProviderInstance>,
    /// Whether the authorities are those of the system.
    system_roots: bool,
    /// Which names the peer's certificate may have.
    san_matchers: Box<[SanMatcher]>,
}

impl Common {
    /// Parses the common settings.
    fn parse(mut from: CommonTlsContext, cx: &Context<'_>) -> Result<Self, Invalid> {
        // A29-8: versions, ciphers and handshakes may have been restricted for security.
        if from.tls_params.is_some() {
            return Err(unsupported("tls_params"));
        }
        if from.custom_handshaker.is_some() {
            return Err(unsupported("custom_handshaker"));
        }
        let identity = identity(&mut from, cx)?;
        let mut common = Self {
            identity,
            context: Some("validation_context"),
            roots: None,
            system_roots: false,
            san_matchers: Box::default(),
        };
        match from.validation_context_type {
            None => common.context = None,
            Some(ValidationContextType::ValidationContext(context)) => {
                common.validation(context, cx).map_err(|e| e.at("validation_context"))?;
            }
            Some(ValidationContextType::CombinedValidationContext(combined)) => {
                common.context = Some("combined_validation_context.default_validation_context");
                let at = |e: Invalid| e.at("combined_validation_context");
                if let Some(context) = combined.default_validation_context {
                    common.validation(context, cx).map_err(|e| at(e.at("default_validation_context")))?;
                }
                // The older field counts without the newer one alone.
                if let (None, Some(older)) =
                    (&common.roots, combined.validation_context_certificate_provider_instance)
                {
                    let roots = ProviderInstance::of_instance(older, cx);
                    common.roots = Some(
                        roots.map_err(|e| at(e.at("validation_context_certificate_provider_instance")))?,
                    );
                }
            }
            Some(ValidationContextType::ValidationContextCertificateProviderInstance(older)) => {
                let roots = ProviderInstance::of_instance(older, cx);
                common.roots =
                    Some(roots.map_err(|e| e.at("validation_context_certificate_provider_instance"))?);
            }
            Some(ValidationContextType::ValidationContextSdsSecretConfig(_)) => {
                return Err(unsupported("validation_context_sds_secret_config"));
            }
        }
        Ok(common)
    }

    /// Parses how the peer is checked.
    fn validation(
        &mut self,
        from: tls::CertificateValidationContext,
        cx: &Context<'_>,
    ) -> Result<(), Invalid> {
        let sct = from.require_signed_certificate_timestamp.is_some_and(|require| require.value);
        for (set, field) in [
            (!from.verify_certificate_spki.is_empty(), "verify_certificate_spki"),
            (!from.verify_certificate_hash.is_empty(), "verify_certificate_hash"),
            (sct, "require_signed_certificate_timestamp"),
            (from.crl.is_some(), "crl"),
            (from.custom_validator_config.is_some(), "custom_validator_config"),
        ] {
            if set {
                return Err(unsupported(field));
            }
        }
        self.san_matchers =
            SanMatcher::parse_all(from.match_subject_alt_names, from.match_typed_subject_alt_names)?;
        self.system_roots = from.system_root_certs.is_some();
        self.roots = from
            .ca_certificate_provider_instance
            .map(|instance| ProviderInstance::of_plugin(instance, cx))
            .transpose()
            .map_err(|e| e.at("ca_certificate_provider_instance"))?;
        Ok(())
    }
}

impl SanMatcher {
    /// Returns whether a name of a certificate matches. An address is compared in the form of RFC 5952, an exact
    /// pattern also matches a DNS name with a wildcard, and an empty name never matches.
    pub fn matches(&self, san_type: SanType, name: &str) -> bool {
        // A29-13.
        if name.is_empty() || self.san_type.is_some_and(|own| own != san_type) {
            return false;
        }
        match (san_type, &self.matcher.pattern) {
            (SanType::Dns, StringPattern::Exact(host)) => is_for(name, host),
            (SanType::IpAddress, _) => match name.parse::<IpAddr>() {
                Ok(address) => self.matcher.matches(&address.to_string()),
                Err(_) => self.matcher.matches(name),
            },
            (SanType::Email | SanType::Dns | SanType::Uri, _) => self.matcher.matches(name),
        }
    }

    /// Rule T15. Either field may be used, but not both, as in Envoy.
    pub(super) fn parse_all(
        any: Vec<crate::pb::envoy::r#type::matcher::v3::StringMatcher>,
        typed: Vec<tls::SubjectAltNameMatcher>,
    ) -> Result<Box<[Self]>, Invalid> {
        const TYPED: &str = "match_typed_subject_alt_names";
        if !any.is_empty() && !typed.is_empty() {
            return Err(Invalid::field(TYPED, "excludes match_subject_alt_names, which is set too"));
        }
        if !typed.is_empty() {
            return parts::each(TYPED, typed, Self::of_type);
        }
        parts::each("match_subject_alt_names", any, |matcher| {
            Ok(Self { san_type: None, matcher: StringMatcher::parse(matcher)? })
        })
    }

    /// Parses a condition on the names of a certificate.
    fn of_type(from: tls::SubjectAltNameMatcher) -> Result<Self, Invalid> {
        use tls::subject_alt_name_matcher::SanType as Type;
        let san_type = match Type::try_from(from.san_type) {
            Ok(Type::Email) => SanType::Email,
            Ok(Type::Dns) => SanType::Dns,
            Ok(Type::Uri) => SanType::Uri,
            Ok(Type::IpAddress) => SanType::IpAddress,
            Ok(other @ (Type::Unspecified | Type::OtherName)) => {
                let reason = format!("{} is not supported", other.as_str_name());
                return Err(Invalid::field("san_type", reason));
            }
            Err(_) => {
                return Err(Invalid::field("san_type", format!("{} is no known type", from.san_type)));
            }
        };
        let matcher = from.matcher.ok_or(Invalid::new("must be set")).and_then(StringMatcher::parse);
        Ok(Self { san_type: Some(san_type), matcher: matcher.map_err(|e| e.at("matcher"))? })
    }
}

/// Returns whether a DNS name of a certificate is valid for a host (CH7.10). The first label of the name may be a
/// wildcard, which stands for one label; a name with a `*` elsewhere is for no host. A trailing dot and case are ignored.
fn is_for(name: &str, host: &str) -> bool {
    let [name, host] = [name, host].map(|name| name.strip_suffix('.').unwrap_or(name));
    // C-core refuses names that begin with a dot, too.
    if [name, host].iter().any(|name| name.is_empty() || name.starts_with('.')) {
        return false;
    }
    if !name.contains('*') {
        return name.eq_ignore_ascii_case(host);
    }
    let parent = name.strip_prefix("*.").filter(|parent| !parent.is_empty() && !parent.contains('*'));
    let covering = host.split_once('.').map(|(_, parent)| parent);
    parent.zip(covering).is_some_and(|(parent, covering)| parent.eq_ignore_ascii_case(covering))
}

/// Returns a hostname without its port, and without the brackets of an IPv6 address.
pub(crate) fn without_port(hostname: &str) -> &str {
    if let Some((address, _)) = hostname.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match hostname.split_once(':') {
        // With a further colon it is an IPv6 address without brackets, and so without a port.
        Some((host, port)) if !port.contains(':') => host,
        Some(_) | None => hostname,
    }
}

/// Rules T3 and T4: certificates in the message are an error unless a provider makes them superfluous.
fn identity(from: &mut CommonTlsContext, cx: &Context<'_>) -> Result<Option<ProviderInstance>, Invalid> {
    if let Some(instance) = from.tls_certificate_provider_instance.take() {
        let identity = ProviderInstance::of_plugin(instance, cx);
        return Ok(Some(identity.map_err(|e| e.at("tls_certificate_provider_instance"))?));
    }
    if let Some(older) = from.tls_certificate_certificate_provider_instance.take() {
        let identity = ProviderInstance::of_instance(older, cx);
        return Ok(Some(identity.map_err(|e| e.at("tls_certificate_certificate_provider_instance"))?));
    }
    for (set, field) in [
        (!from.tls_certificates.is_empty(), "tls_certificates"),
        (!from.tls_certificate_sds_secret_configs.is_empty(), "tls_certificate_sds_secret_configs"),
    ] {
        if set {
            let reason = "is not supported; use tls_certificate_provider_instance";
            return Err(Invalid::field(field, reason));
        }
    }
    Ok(None)
}

/// Decodes the configuration of a transport socket.
fn typed_config<M: prost::Message + Default>(
    socket: &core::TransportSocket,
    expected: &str,
) -> Result<M, Invalid> {
    let Some(ConfigType::TypedConfig(any)) = &socket.config_type else {
        return Err(Invalid::field("typed_config", "must be set"));
    };
    let name = parts::message_name(&any.type_url);
    if name != expected {
        let reason = format!("{name:?} is not supported, only {expected}");
        return Err(Invalid::field("typed_config", reason));
    }
    parts::decode(any).map_err(|e| e.at("typed_config"))
}

/// The error of a setting without which a connection would be less secure.
fn unsupported(field: &str) -> Invalid {
    Invalid::field(field, "is not supported, and to ignore it would be less secure")
}

/// The name that the transport socket of a server must have (S27). That of a cluster may be any.
const TLS_SOCKET: &str = "envoy.transport_sockets.tls";
/// The configuration of the transport socket of a cluster.
const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
/// The configuration of the transport socket of a filter chain.
const DOWNSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
/// The length of the name of a server.
const MAX_SNI: usize = 255;

#[cfg(test)]
mod tests;
