//! TLS of servers: rules S27 to S34.

use super::*;

#[test]
fn s27_s28_s31_accepts_the_tls_context_of_servers() {
    let message = tls::DownstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    let parsed = downstream_message(message).unwrap();
    assert_eq!((parsed.identity, parsed.roots), (instance("id", "root"), Some(instance("ca", "root"))));
}

#[test]
fn s27_rejects_sockets_of_another_name() {
    let message = tls::DownstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    for name in ["", "tls"] {
        let other = core::TransportSocket { name: name.into(), ..socket(DOWNSTREAM, &message) };
        let e = DownstreamTls::parse(&other, &Context::new()).unwrap_err();
        assert_eq!(e.to_string(), format!("name: must be \"envoy.transport_sockets.tls\", is {name:?}"));
    }
}

#[test]
fn s28_s31_rejects_other_contexts_of_servers() {
    let message = tls::DownstreamTlsContext { common_tls_context: Some(common()), ..Default::default() };
    let e = DownstreamTls::parse(&socket(UPSTREAM, &message), &Context::new()).unwrap_err();
    assert_eq!(e.to_string(), format!("typed_config: {UPSTREAM:?} is not supported, only {DOWNSTREAM}"));
    let e = downstream_message(tls::DownstreamTlsContext::default()).unwrap_err();
    assert_eq!(e, format!("{AT}: must be set"));
}

fn requiring(require_sni: bool, ocsp_staple_policy: i32) -> Result<DownstreamTls, String> {
    downstream_message(tls::DownstreamTlsContext {
        common_tls_context: Some(common()),
        require_sni: Some(BoolValue { value: require_sni }),
        ocsp_staple_policy,
        ..Default::default()
    })
}

#[test]
fn s29_s30_accepts_servers_that_require_neither_names_nor_stapling() {
    assert_eq!(requiring(false, 0), downstream(common()));
}

#[test]
fn s29_s30_rejects_servers_that_require_names_or_stapling() {
    assert_eq!(requiring(true, 0).unwrap_err(), format!("typed_config.require_sni: {LESS_SECURE}"));
    for policy in [1, 2, 3] {
        let e = requiring(false, policy).unwrap_err();
        assert_eq!(e, "typed_config.ocsp_staple_policy: only LENIENT_STAPLING is supported");
    }
}

fn requiring_certificates(context: Option<ValidationContextType>) -> Result<DownstreamTls, String> {
    downstream_message(tls::DownstreamTlsContext {
        common_tls_context: Some(validated(context)),
        require_client_certificate: Some(BoolValue { value: true }),
        ..Default::default()
    })
}

#[test]
fn s34_accepts_client_certificates_that_can_be_checked() {
    let parsed = requiring_certificates(validation(roots())).unwrap();
    assert!(parsed.require_client_certificate && parsed.roots == Some(instance("ca", "root")));
}

#[test]
fn s34_rejects_client_certificates_that_cannot_be_checked() {
    let e = requiring_certificates(None).unwrap_err();
    let at = "typed_config.require_client_certificate";
    assert_eq!(e, format!("{at}: needs a validation_context to check the certificates"));
}
