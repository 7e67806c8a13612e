//! The name and the address of a Listener.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use prost::Message as _;

use crate::{
    config::Template,
    error::Code,
    pb::envoy::{
        config::{
            core::v3::{
                TransportSocket, address::Address as Kind, socket_address::PortSpecifier,
                transport_socket::ConfigType,
            },
            listener::v3::{FilterChain, Listener as Message},
        },
        extensions::transport_sockets::tls::v3::{
            CertificateProviderPluginInstance, CommonTlsContext, DownstreamTlsContext,
        },
    },
    resource::{Context, Listener, Resource},
    serve::{
        Settings, TlsSupport,
        fixture::{Server, any, chain, inline, listener, listener_message, parse, routes_message},
    },
};

fn bound(address: &str) -> String {
    address.parse::<SocketAddr>().unwrap().to_string()
}

fn at(address: &str, port: u32) -> Message {
    let mut message = listener_message(vec![chain("a", inline(routes_message("", &[])))]);
    let Some(Kind::SocketAddress(socket)) = &mut message.address.as_mut().unwrap().address else { panic!() };
    (socket.address, socket.port_specifier) = (address.into(), Some(PortSpecifier::PortValue(port)));
    message
}

#[test]
fn sv2_1_each_placeholder_is_the_bound_address() {
    let template = Template::parse("grpc/server?a=%s&b=%s").unwrap();
    assert_eq!(template.expand(&bound("0.0.0.0:8080")), "grpc/server?a=0.0.0.0:8080&b=0.0.0.0:8080");
    assert_eq!(Template::parse("fixed").unwrap().expand(&bound("[::]:8080")), "fixed");
}

#[test]
fn sv2_2_an_address_in_a_uri_is_percent_encoded() {
    let template = Template::parse("xdstp://a/envoy.config.listener.v3.Listener/%s").unwrap();
    assert_eq!(template.expand(&bound("[::]:80")), "xdstp://a/envoy.config.listener.v3.Listener/%5B::%5D:80");
}

#[test]
fn sv2_4_the_address_has_the_ip_of_the_socket_and_its_port_or_none() {
    for (address, port) in [("10.0.0.1", 8080), ("10.0.0.1", 0)] {
        let mut server = Server::new(Settings::default());
        assert_eq!(server.listener(&parse(&at(address, port))), ["add a as 1", "open", "SERVING"]);
    }
}

#[test]
fn sv2_5_sv2_6_another_address_is_not_served_and_both_are_named() {
    for (address, port, shown) in [
        ("10.0.0.2", 8080, "10.0.0.2:8080"),
        ("10.0.0.1", 8081, "10.0.0.1:8081"),
        ("0.0.0.0", 8080, "0.0.0.0:8080"),
        ("::", 0, "[::]:0"),
    ] {
        let mut server = Server::new(Settings::default());
        let expected = format!(
            "NOT_SERVING: FAILED_PRECONDITION: Listener \"server\": its address is {shown}, the server listens on \
             10.0.0.1:8080 [node id: node]"
        );
        assert_eq!(server.listener(&parse(&at(address, port))), [expected]);
    }
}

#[test]
fn sv2_6_sv11_10_a_clients_listener_is_not_served_and_drains() {
    let mut server = Server::new(Settings::default());
    server.listener(&listener(vec![chain("a", inline(routes_message("", &[])))]));
    server.connect();
    let manager = listener_message(vec![chain("a", inline(routes_message("", &[])))]);
    let config = manager.filter_chains[0].filters[0].config_type.clone();
    let Some(crate::pb::envoy::config::listener::v3::filter::ConfigType::TypedConfig(any)) = config else {
        panic!()
    };
    let api = crate::pb::envoy::config::listener::v3::ApiListener { api_listener: Some(any) };
    let api = Message { name: "server".into(), api_listener: Some(api), ..Default::default() };
    let expected = "NOT_SERVING: FAILED_PRECONDITION: Listener \"server\": it is a client's listener (api_listener), \
                    without filter chains [node id: node]";
    assert_eq!(server.listener(&parse(&api)), ["drain 1", expected]);
    assert_eq!(server.no_listener(Code::NotFound).len(), 1);
}

/// A Listener with TLS, by the provider `mine` of the bootstrap.
fn secured() -> Arc<Listener> {
    let instance = CertificateProviderPluginInstance { instance_name: "mine".into(), ..Default::default() };
    let common = CommonTlsContext { tls_certificate_provider_instance: Some(instance), ..Default::default() };
    let tls = DownstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
    let type_name = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
    let config_type = Some(ConfigType::TypedConfig(any(type_name, tls.encode_to_vec())));
    let transport_socket = Some(TransportSocket { name: "envoy.transport_sockets.tls".into(), config_type });
    let plain = chain("secured", inline(routes_message("", &[])));
    let message = listener_message(vec![FilterChain { transport_socket, ..plain }]);
    let providers = BTreeSet::from(["mine".to_owned()]);
    let context = Context::new().with_certificate_providers(&providers);
    Arc::new(Listener::parse(&message.encode_to_vec().into(), &context).unwrap())
}

#[test]
fn sv5_1_a_chain_with_tls_is_never_served_without_it() {
    let mut server = Server::new(Settings::default());
    let expected = "NOT_SERVING: FAILED_PRECONDITION: Listener \"server\": filter chain \"secured\" has TLS, which the \
                    server does not support [node id: node]";
    assert_eq!(server.listener(&secured()), [expected]);
    assert!(!server.machine.is_accepting());
    // With security of the application, that of chains is not used.
    let mut server = Server::new(Settings { tls: TlsSupport::Ignored, ..Settings::default() });
    assert_eq!(server.listener(&secured()), ["add secured as 1", "open", "SERVING"]);
}
