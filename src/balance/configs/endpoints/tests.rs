use std::net::SocketAddr;

use super::*;
use crate::{
    balance::identity::Destination,
    pb::envoy::config::{
        core::v3::{self as core, socket_address::PortSpecifier},
        endpoint::v3::{LocalityLbEndpoints, lb_endpoint::HostIdentifier},
    },
    resolve::fixture::{any, assignment, locality},
    resource::{UpstreamTls, tls::Roots},
};

const PROXY: &str = "envoy.http11_proxy_transport_socket.proxy_address";

fn tls(auto_host_sni: bool) -> UpstreamTls {
    UpstreamTls {
        identity: None,
        roots: Roots::System,
        san_matchers: [].into(),
        sni: Some("shop.example".into()),
        auto_host_sni,
        auto_sni_san_validation: false,
    }
}

fn proxy(port: u16) -> SocketAddr {
    ([10, 0, 0, 9], port).into()
}

/// Metadata with the address of a proxy.
fn metadata(port: u16) -> Option<core::Metadata> {
    let address = core::SocketAddress {
        address: "10.0.0.9".into(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    let address = core::Address { address: Some(core::address::Address::SocketAddress(address)) };
    let any = any("envoy.config.core.v3.Address", &address);
    Some(core::Metadata { typed_filter_metadata: [(PROXY.to_owned(), any)].into(), ..Default::default() })
}

/// Endpoints with hostnames, and with proxies if their port is not 0.
fn endpoints(endpoints: &[(&str, &str, u16)]) -> LocalityLbEndpoints {
    let addresses: Vec<_> = endpoints.iter().map(|it| it.0).collect();
    let mut locality = locality(0, "a", &addresses);
    for (endpoint, (_, hostname, port)) in locality.lb_endpoints.iter_mut().zip(endpoints) {
        if *port > 0 {
            endpoint.metadata = metadata(*port);
        }
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoint.host_identifier {
            endpoint.hostname = (*hostname).into();
        }
    }
    locality
}

fn identities(of: &Endpoints<'_>, locality: LocalityLbEndpoints) -> Vec<Identity> {
    let priorities = of.priorities(&assignment("cart", vec![locality]));
    priorities[0][0].endpoints.iter().map(|it| it.identity.clone()).collect()
}

#[test]
fn ch7_25_a_proxy_is_that_of_the_endpoint_or_else_of_the_locality() {
    let plain = Security::Plaintext;
    let mut listed = endpoints(&[("10.0.0.1:80", "", 0), ("10.0.0.2:80", "a", 7)]);
    let of = |port| Identity::new(Some(proxy(port)), Security::Plaintext);
    let all = |listed: &LocalityLbEndpoints, may| identities(&Endpoints::new(&plain, may), listed.clone());
    assert_eq!(all(&listed, true), [Identity::default(), of(7)]);
    listed.metadata = metadata(8);
    assert_eq!(all(&listed, true), [of(8), of(7)]);
    assert_eq!(all(&listed, false), [Identity::default(), Identity::default()], "without the socket");
}

#[test]
fn ch7_20_hostnames_are_a_part_of_the_identity_where_they_are_the_server_name_alone() {
    let listed = || {
        endpoints(&[
            ("10.0.0.1:80", "a.example:81", 0),
            ("10.0.0.2:80", "a.example", 7),
            ("10.0.0.3:80", "", 0),
            ("10.0.0.4:80", "shop.example:1", 0),
        ])
    };
    let hostname = |it: &Identity| match it.security() {
        Security::Cluster { hostname, .. } => hostname.as_deref().map(str::to_owned),
        Security::Plaintext | Security::Fallback => panic!("it is that of the cluster"),
    };
    let security = Security::of_cluster(&tls(true));
    let all = identities(&Endpoints::new(&security, true), listed());
    let name = Some("a.example".to_owned());
    assert_eq!(all.iter().map(hostname).collect::<Vec<_>>(), [name.clone(), name, None, None]);
    assert_eq!(all[1].proxy(), Some(proxy(7)));
    assert_eq!(all[2], all[3], "both have the name of the cluster");
    let security = Security::of_cluster(&tls(false));
    let all = identities(&Endpoints::new(&security, false), listed());
    assert!(all.iter().all(|it| *it == all[0]), "{all:?}");
}

#[test]
fn ch7_20_identities_are_compared_by_what_they_contain() {
    let identity = |tls: &UpstreamTls| Identity::new(None, Security::of_cluster(tls));
    let one = identity(&tls(true));
    assert_eq!(one, identity(&tls(true)), "of two updates");
    assert_ne!(one, identity(&tls(false)));
    assert_ne!(one, identity(&UpstreamTls { sni: None, ..tls(true) }));
    assert_ne!(one, identity(&UpstreamTls { auto_sni_san_validation: true, ..tls(true) }));
    assert_ne!(one, Identity::new(None, Security::Fallback));
    assert_eq!(Identity::new(None, Security::Plaintext), Identity::default());
    let all = [
        Identity::default(),
        Identity::new(None, Security::Fallback),
        one,
        Identity::new(Some(proxy(1)), Security::Plaintext),
        Identity::new(Some(proxy(1)), Security::Fallback),
        Identity::new(Some(proxy(2)), Security::Fallback),
    ];
    for (place, identity) in all.iter().enumerate() {
        let to = |it: &Identity| Destination::new(proxy(80), it.clone());
        let equal = all.iter().filter(|it| to(it) == to(identity)).count();
        assert_eq!(equal, 1, "{place}");
    }
    assert_eq!(format!("{:?}", Identity::default()), "Plain");
}
