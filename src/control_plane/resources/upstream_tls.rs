use super::{extension, message_builder};
use crate::pb::envoy::{
    config::core::v3::{TransportSocket, transport_socket::ConfigType},
    extensions::transport_sockets::tls::v3::{
        CertificateProviderPluginInstance, CertificateValidationContext, SubjectAltNameMatcher,
        UpstreamTlsContext, common_tls_context::ValidationContextType, subject_alt_name_matcher::SanType,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};

/// TLS to the endpoints of a cluster, whose certificates are verified by the roots of this instance of a certificate provider of the
/// bootstrap (A29).
///
/// ```
/// use xdskit::control_plane::resources::{cluster, upstream_tls};
///
/// let tls = upstream_tls("roots").san("cart.example").client_certificates("identity");
/// let cart = cluster("cart").tls(tls);
/// ```
pub fn upstream_tls(roots: impl Into<String>) -> UpstreamTlsBuilder {
    let mut builder = UpstreamTlsBuilder { message: UpstreamTlsContext::default() };
    builder.validation().ca_certificate_provider_instance = Some(instance(roots));
    builder
}

/// A builder of an UpstreamTlsContext; see [`upstream_tls`].
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTlsBuilder {
    /// The message so far.
    message: UpstreamTlsContext,
}

impl UpstreamTlsBuilder {
    /// Accepts certificates with this DNS name as a subject alternative name, in any case; further names are alternatives. By default,
    /// names are not verified.
    #[must_use]
    pub fn san(mut self, dns_name: impl Into<String>) -> Self {
        let exact = MatchPattern::Exact(dns_name.into());
        let matcher = StringMatcher { match_pattern: Some(exact), ignore_case: true };
        let names = &mut self.validation().match_typed_subject_alt_names;
        names.push(SubjectAltNameMatcher { san_type: SanType::Dns.into(), matcher: Some(matcher) });
        self
    }

    /// Has clients send the certificate of this instance of a certificate provider (mutual TLS).
    #[must_use]
    pub fn client_certificates(mut self, identity: impl Into<String>) -> Self {
        let common = self.message.common_tls_context.get_or_insert_default();
        common.tls_certificate_provider_instance = Some(instance(identity));
        self
    }

    /// Sets the server name that clients send (SNI).
    #[must_use]
    pub fn sni(mut self, name: impl Into<String>) -> Self {
        self.message.sni = name.into();
        self
    }

    /// The transport socket of a cluster.
    pub(super) fn into_socket(self) -> TransportSocket {
        TransportSocket {
            name: "envoy.transport_sockets.tls".to_owned(),
            config_type: Some(ConfigType::TypedConfig(extension(UPSTREAM_TLS, &self.message))),
        }
    }

    /// The verification of certificates.
    fn validation(&mut self) -> &mut CertificateValidationContext {
        let common = self.message.common_tls_context.get_or_insert_default();
        let other = ValidationContextType::ValidationContext(CertificateValidationContext::default());
        match common.validation_context_type.get_or_insert_with(|| other.clone()) {
            ValidationContextType::ValidationContext(validation) => validation,
            edited @ (ValidationContextType::ValidationContextSdsSecretConfig(_)
            | ValidationContextType::CombinedValidationContext(_)
            | ValidationContextType::ValidationContextCertificateProviderInstance(_)) => {
                panic!("the validation was edited to {edited:?}, which has no names")
            }
        }
    }
}

message_builder!(UpstreamTlsBuilder: UpstreamTlsContext);

fn instance(name: impl Into<String>) -> CertificateProviderPluginInstance {
    CertificateProviderPluginInstance { instance_name: name.into(), ..Default::default() }
}

/// The type of the configuration of TLS to endpoints.
const UPSTREAM_TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
