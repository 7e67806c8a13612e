use serde_json::json;

use super::*;
use crate::{
    pb::google::protobuf::UInt32Value,
    resource::{
        Listener,
        samples::{chain, parse, parse_socket, rejection, socket_listener},
    },
};

mod connections;
mod rules;
mod tls;

fn anywhere() -> pb::FilterChainMatch {
    pb::FilterChainMatch::default()
}

fn ranges(ranges: &[&str]) -> Vec<core::CidrRange> {
    let range = |text: &&str| {
        let (address, bits) = text.split_once('/').unwrap();
        let prefix_len = Some(UInt32Value { value: bits.parse().unwrap() });
        core::CidrRange { address_prefix: address.into(), prefix_len }
    };
    ranges.iter().map(range).collect()
}

fn to(destinations: &[&str]) -> pb::FilterChainMatch {
    pb::FilterChainMatch { prefix_ranges: ranges(destinations), ..anywhere() }
}

fn from(sources: &[&str], ports: &[u32]) -> pb::FilterChainMatch {
    pb::FilterChainMatch { source_prefix_ranges: ranges(sources), source_ports: ports.to_vec(), ..anywhere() }
}

/// Returns the names of the remaining chains.
fn names(chains: Vec<pb::FilterChain>) -> Vec<String> {
    names_in(&parse_socket(&socket_listener(chains)))
}

fn names_in(listener: &SocketListener) -> Vec<String> {
    listener.filter_chains.iter().map(|chain| chain.name.to_string()).collect()
}

/// Returns the error of a listener with these chains.
fn rejected(chains: Vec<pb::FilterChain>) -> String {
    rejection::<Listener>(&socket_listener(chains))
}

#[test]
fn what_is_written_is_what_was_sent() {
    let named = pb::FilterChainMatch { server_names: vec!["a".into()], ..to(&["10.2.0.0/16"]) };
    let message = socket_listener(vec![chain("a", to(&["10.0.0.0/8"])), chain("b", named)]);
    let json = json!({"name": "server", "socket": {
        "address": "0.0.0.0:8080",
        "filter_chains": [{
            "name": "a",
            "match": {
                "prefix_ranges": ["10.0.0.0/8"], "source_type": "any",
                "source_prefix_ranges": [], "source_ports": [],
            },
            "connection_manager": {
                "route_config_name": "routes",
                "http_filters": [{"name": "router", "config": "router", "disabled": false}],
                "max_stream_duration": null,
            },
            "tls": null,
        }],
        "unserved_ranges": ["10.2.0.0/16"],
        "default_filter_chain": null,
    }, "remarks": {"left_out": [{
        "path": "filter_chains[1].filter_chain_match",
        "reason": "no connection can match it: servers of gRPC have no server names, application protocols, other \
                   transport protocols and destination ports",
    }]}});
    assert_eq!(serde_json::to_value(parse::<Listener>(&message).unwrap()).unwrap(), json);
}
