//! The choice of a chain for a connection.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn connection(local: &str, peer: &str) -> Connection {
    Connection::new(local.parse().unwrap(), peer.parse().unwrap())
}

/// Returns the name of the chain for a connection from a peer to an address at port 8080.
fn chosen<'a>(listener: &'a SocketListener, local: &str, peer: &str) -> Option<&'a str> {
    let local = if local.contains(':') { format!("[{local}]:8080") } else { format!("{local}:8080") };
    listener.filter_chain(&connection(&local, peer)).map(|chain| &*chain.name)
}

fn of_type(source_type: ConnectionSourceType, conditions: pb::FilterChainMatch) -> pb::FilterChainMatch {
    pb::FilterChainMatch { source_type: source_type as i32, ..conditions }
}

#[test]
fn a36_9_the_smallest_range_of_destinations_wins() {
    let listener = parse_socket(&socket_listener(vec![
        chain("all", anywhere()),
        chain("v4", to(&["0.0.0.0/0"])),
        chain("ten", to(&["10.0.0.0/8", "11.0.0.0/8"])),
        chain("one", to(&["10.1.2.3/32"])),
        chain("six", to(&["2001:db8::/32"])),
    ]));
    for (local, expected) in [
        ("10.1.2.3", "one"),
        ("10.1.2.4", "ten"),
        ("11.255.255.255", "ten"),
        ("12.0.0.0", "v4"),
        ("::ffff:10.1.2.3", "one"),
        ("::ffff:12.0.0.1", "v4"),
        ("2001:db8::1", "six"),
        ("2001:db9::1", "all"),
    ] {
        assert_eq!(chosen(&listener, local, "192.0.2.1:1"), Some(expected), "{local}");
    }
}

#[test]
fn a36_9_a_chain_for_the_kind_of_peer_wins_over_one_for_all() {
    use ConnectionSourceType::{External, SameIpOrLoopback};
    let listener = parse_socket(&socket_listener(vec![
        chain("all", anywhere()),
        chain("local", of_type(SameIpOrLoopback, anywhere())),
        chain("external", of_type(External, to(&["10.0.0.0/8"]))),
    ]));
    for (local, peer, expected) in [
        ("192.0.2.1", "127.0.0.1:1", Some("local")),
        ("192.0.2.1", "192.0.2.1:1", Some("local")),
        ("192.0.2.1", "[::ffff:192.0.2.1]:1", Some("local")),
        ("192.0.2.1", "[::1]:1", Some("local")),
        ("192.0.2.1", "192.0.2.2:1", Some("all")),
        ("10.0.0.1", "192.0.2.2:1", Some("external")),
        ("10.0.0.1", "127.0.0.1:1", None),
    ] {
        assert_eq!(chosen(&listener, local, peer), expected, "{peer} to {local}");
    }
    assert_eq!(connection("10.0.0.1:1", "10.0.0.1:2").source_type(), SourceType::SameIpOrLoopback);
    assert_eq!(connection("10.0.0.1:1", "10.0.0.2:1").source_type(), SourceType::External);
}

#[test]
fn a36_9_the_smallest_range_of_sources_wins_and_then_the_port() {
    let listener = parse_socket(&socket_listener(vec![
        chain("all", anywhere()),
        chain("port", from(&[], &[7])),
        chain("net", from(&["192.0.2.0/24"], &[])),
        chain("net port", from(&["192.0.2.0/24"], &[7, 8])),
        chain("host port", from(&["192.0.2.9/32"], &[9])),
    ]));
    for (peer, expected) in [
        ("198.51.100.1:1", Some("all")),
        ("198.51.100.1:7", Some("port")),
        ("192.0.2.1:1", Some("net")),
        ("192.0.2.1:8", Some("net port")),
        ("192.0.2.9:9", Some("host port")),
        // There is no backtracking from the host to its network.
        ("192.0.2.9:7", None),
        ("[2001:db8::1]:7", Some("port")),
    ] {
        assert_eq!(chosen(&listener, "10.0.0.1", peer), expected, "{peer}");
    }
}

#[test]
fn a36_9_the_default_chain_is_for_all_others() {
    let chains = vec![chain("ten", pb::FilterChainMatch { source_ports: vec![7], ..to(&["10.0.0.0/8"]) })];
    let closing = parse_socket(&socket_listener(chains.clone()));
    let default_filter_chain = Some(chain("default", to(&["192.0.2.0/24"])));
    let answering = parse_socket(&pb::Listener { default_filter_chain, ..socket_listener(chains) });
    for (local, peer, expected) in [
        ("10.0.0.1", "192.0.2.1:7", Some("ten")),
        ("10.0.0.1", "192.0.2.1:8", None),
        ("11.0.0.1", "192.0.2.1:7", None),
    ] {
        assert_eq!(chosen(&closing, local, peer), expected);
        assert_eq!(chosen(&answering, local, peer), Some(expected.unwrap_or("default")));
    }
}

/// Returns the chain that the examples of the table choose, in either order of the chains.
fn of_table(chains: Vec<pb::FilterChain>, has_default: bool, local: &str, peer: &str) -> Option<String> {
    let default_filter_chain = has_default.then(|| chain("D", anywhere()));
    let of = |chains| {
        let message =
            pb::Listener { default_filter_chain: default_filter_chain.clone(), ..socket_listener(chains) };
        chosen(&parse_socket(&message), local, peer).map(str::to_owned)
    };
    let mut reversed = chains.clone();
    reversed.reverse();
    let chosen = of(chains);
    assert_eq!(of(reversed), chosen, "the order of the chains has an effect");
    chosen
}

fn and(port: u32, conditions: pb::FilterChainMatch) -> pb::FilterChainMatch {
    pb::FilterChainMatch { source_ports: vec![port], ..conditions }
}

const PEER: &str = "198.51.100.1:5000";

#[test]
fn sv4_2_each_step_keeps_the_most_specific_without_a_way_back() {
    use ConnectionSourceType::{External, SameIpOrLoopback};
    let choose = |chains: &[(&str, pb::FilterChainMatch)], has_default, local, peer| {
        let chains = chains.iter().map(|(name, conditions)| chain(name, conditions.clone())).collect();
        of_table(chains, has_default, local, peer).unwrap_or_default()
    };
    let ten = [("A", to(&["10.0.0.0/8"])), ("B", anywhere())];
    assert_eq!(choose(&ten, false, "10.1.1.1", PEER), "A");
    assert_eq!(choose(&ten, false, "192.0.2.1", PEER), "B");
    let port = [("A", and(80, to(&["10.0.0.0/8"]))), ("B", anywhere())];
    assert_eq!(choose(&port, true, "10.1.1.1", "198.51.100.1:81"), "D");
    let local = [("A", of_type(SameIpOrLoopback, from(&["10.0.0.0/8"], &[]))), ("B", anywhere())];
    assert_eq!(choose(&local, true, "192.0.2.1", "127.0.0.1:1"), "D");
    let named = pb::FilterChainMatch { server_names: vec!["a".into()], ..to(&["10.0.0.0/8"]) };
    assert_eq!(choose(&[("A", named), ("B", anywhere())], true, "10.1.1.1", PEER), "D");
    let ports = [
        ("A", and(5000, from(&["10.0.0.0/8"], &[]))),
        ("B", from(&["10.0.0.0/8"], &[])),
        ("C", and(6000, from(&["10.1.0.0/16"], &[]))),
    ];
    assert_eq!(choose(&ports, true, "192.0.2.1", "10.1.1.1:5000"), "D");
    assert_eq!(choose(&ports, false, "192.0.2.1", "10.1.1.1:5000"), "");
    let external = [("A", of_type(External, anywhere())), ("B", anywhere())];
    assert_eq!(choose(&external, true, "192.0.2.1", "127.0.0.1:1"), "B");
}

#[test]
fn sv4_3_an_unset_range_is_below_all_addresses_of_a_family() {
    let chains = || vec![chain("A", anywhere()), chain("B", to(&["0.0.0.0/0"]))];
    assert_eq!(of_table(chains(), false, "192.0.2.1", PEER).as_deref(), Some("B"));
    assert_eq!(of_table(chains(), false, "2001:db8::1", "[2001:db8::2]:1").as_deref(), Some("A"));
    let unset = core::CidrRange { address_prefix: "10.0.0.0".into(), prefix_len: None };
    let all = pb::FilterChainMatch { prefix_ranges: vec![unset], ..anywhere() };
    assert_eq!(of_table(vec![chain("A", all)], false, "192.0.2.1", PEER).as_deref(), Some("A"));
}

#[test]
fn sv4_5_plaintext_by_name_wins_within_its_destination() {
    let raw = pb::FilterChainMatch { transport_protocol: "raw_buffer".into(), ..to(&["10.0.0.0/8"]) };
    let chains = || vec![chain("A", raw.clone()), chain("B", to(&["10.0.0.0/8"])), chain("C", anywhere())];
    assert_eq!(of_table(chains(), false, "10.1.1.1", PEER).as_deref(), Some("A"));
    assert_eq!(of_table(chains(), false, "11.1.1.1", PEER).as_deref(), Some("C"));
}

#[test]
fn sv4_6_any_source_is_chosen_where_the_kind_has_no_chain() {
    use ConnectionSourceType::External;
    let chains = vec![chain("A", of_type(External, anywhere())), chain("B", anywhere())];
    assert_eq!(of_table(chains, true, "192.0.2.1", "127.0.0.1:1").as_deref(), Some("B"));
}

#[test]
fn sv4_7_port_zero_is_no_wildcard() {
    let chains = vec![chain("A", from(&[], &[0])), chain("B", anywhere())];
    assert_eq!(of_table(chains, false, "192.0.2.1", PEER).as_deref(), Some("B"));
}

#[test]
fn sv4_9_equal_conditions_are_rejected_after_normalisation() {
    for (a, b) in [
        (&["10.0.0.0/8", "11.0.0.0/8"][..], &["11.0.0.0/8"][..]),
        (&["10.1.2.3/8"], &["10.0.0.0/8"]),
        (&["::ffff:10.0.0.0/104"], &["10.0.0.0/8"]),
    ] {
        let error = rejected(vec![chain("A", to(a)), chain("B", to(b))]);
        assert!(error.contains("matches connections that it or an earlier chain matches already"), "{error}");
    }
}

#[test]
fn sv4_11_the_search_does_not_grow_with_the_number_of_chains() {
    let of = |count: u32| {
        let address = |index: u32| Ipv4Addr::from(0x0a00_0000 + index);
        let chains = (0..count).map(|index| {
            let range = format!("{}/32", address(index));
            chain(&index.to_string(), to(&[&range]))
        });
        parse_socket(&socket_listener(chains.collect()))
    };
    // Each prefix length is looked up once, whatever the number of chains: a scan of them would take minutes.
    let listener = of(10_000);
    for index in (0..10_000_u32).cycle().take(1_000_000) {
        let local = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + index), 8080));
        let connection = Connection::new(local, ([192, 0, 2, 1], 1).into());
        let found = listener.chain_index(&connection);
        assert_eq!(found, Some(ChainIndex::Listed(index as usize)));
    }
    assert_eq!(
        listener.filter_chain(&connection("10.0.39.15:8080", PEER)).map(|chain| &*chain.name),
        Some("9999")
    );
}

/// A chain in general form: all conditions are lists.
#[derive(Debug, Clone)]
struct Model {
    destinations: Vec<(Ipv4Addr, u8)>,
    source_type: ConnectionSourceType,
    sources: Vec<(Ipv4Addr, u8)>,
    ports: Vec<u32>,
    transport: &'static str,
    named: bool,
}

impl Model {
    fn message(&self, name: usize) -> pb::FilterChain {
        let ranges = |list: &[(Ipv4Addr, u8)]| {
            let range = |(address, bits): &(Ipv4Addr, u8)| core::CidrRange {
                address_prefix: address.to_string(),
                prefix_len: Some(UInt32Value { value: u32::from(*bits) }),
            };
            list.iter().map(range).collect()
        };
        let conditions = pb::FilterChainMatch {
            prefix_ranges: ranges(&self.destinations),
            source_type: self.source_type as i32,
            source_prefix_ranges: ranges(&self.sources),
            source_ports: self.ports.clone(),
            transport_protocol: self.transport.into(),
            application_protocols: if self.named { vec!["h2".into()] } else { Vec::new() },
            ..anywhere()
        };
        chain(&name.to_string(), conditions)
    }
}

/// Returns how well ranges match an address: the longest matching prefix, -1 if there are no ranges; `None` if none
/// matches.
fn fit(ranges: &[(Ipv4Addr, u8)], address: Ipv4Addr) -> Option<i32> {
    let bits = |address: Ipv4Addr| format!("{:032b}", u32::from(address));
    let fitting = ranges
        .iter()
        .filter(|(net, length)| bits(*net)[..(*length).into()] == bits(address)[..(*length).into()]);
    if ranges.is_empty() { Some(-1) } else { fitting.map(|(_, length)| i32::from(*length)).max() }
}

/// Returns the chains with the greatest number.
fn best(chains: Vec<(usize, &Model)>, number: impl Fn(&Model) -> Option<i32>) -> Vec<(usize, &Model)> {
    let greatest = chains.iter().filter_map(|(_, chain)| number(chain)).max();
    chains.into_iter().filter(|(_, chain)| number(chain).is_some() && number(chain) == greatest).collect()
}

/// Returns the chain for a connection by the steps of A36 in sequence.
fn expected(chains: &[Model], destination: Ipv4Addr, source: Ipv4Addr, port: u16) -> Option<usize> {
    let local = source.is_loopback() || source == destination;
    let own = if local { ConnectionSourceType::SameIpOrLoopback } else { ConnectionSourceType::External };
    let left = best(chains.iter().enumerate().collect(), |chain| fit(&chain.destinations, destination));
    let left = best(left, |chain| match chain.transport {
        "raw_buffer" => Some(1),
        "" => Some(0),
        _ => None,
    });
    let left = left.into_iter().filter(|(_, chain)| !chain.named).collect();
    let left = best(left, |chain| match chain.source_type {
        kind if kind == own => Some(1),
        ConnectionSourceType::Any => Some(0),
        ConnectionSourceType::SameIpOrLoopback | ConnectionSourceType::External => None,
    });
    let left = best(left, |chain| fit(&chain.sources, source));
    let left = best(left, |chain| match chain.ports.contains(&port.into()) {
        true => Some(1),
        false => chain.ports.is_empty().then_some(0),
    });
    left.first().map(|(index, _)| *index)
}

fn an_address() -> impl Strategy<Value = Ipv4Addr> {
    let byte = |values: Vec<u8>| prop::sample::select(values);
    (byte(vec![10, 127]), byte(vec![0, 1]), byte(vec![0, 255]))
        .prop_map(|(a, b, c)| Ipv4Addr::new(a, b, 0, c))
}

fn some_ranges() -> impl Strategy<Value = Vec<(Ipv4Addr, u8)>> {
    prop::collection::vec((an_address(), prop::sample::select(vec![0u8, 8, 16, 32])), 0..3)
}

fn a_chain() -> impl Strategy<Value = Model> {
    use ConnectionSourceType::{Any, External, SameIpOrLoopback};
    let transport = prop::sample::select(vec!["", "", "", "raw_buffer", "tls"]);
    let kind = prop::sample::select(vec![Any, SameIpOrLoopback, External]);
    let ports = prop::collection::btree_set(1..4u32, 0..3).prop_map(|ports| ports.into_iter().collect());
    let named = prop::sample::select(vec![false, false, false, true]);
    (some_ranges(), kind, some_ranges(), ports, transport, named).prop_map(
        |(destinations, source_type, sources, ports, transport, named)| Model {
            destinations,
            source_type,
            sources,
            ports,
            transport,
            named,
        },
    )
}

proptest! {
    #[test]
    fn a36_9_connections_go_through_the_chain_of_the_model(
        models in prop::collection::vec(a_chain(), 1..6),
        connections in prop::collection::vec((an_address(), an_address(), 1..5u16), 1..12),
    ) {
        // A chain with the same conditions as an earlier one would invalidate the listener.
        let mut chains: Vec<Model> = Vec::new();
        for model in models {
            chains.push(model);
            let messages = chains.iter().enumerate().map(|(index, chain)| chain.message(index)).collect();
            let default_filter_chain = Some(chain("default", anywhere()));
            let message = pb::Listener { default_filter_chain, ..socket_listener(messages) };
            if parse::<Listener>(&message).is_err() {
                chains.pop();
            }
        }
        let messages = chains.iter().enumerate().map(|(index, chain)| chain.message(index)).collect();
        let default_filter_chain = Some(chain("default", anywhere()));
        let listener = parse_socket(&pb::Listener { default_filter_chain, ..socket_listener(messages) });
        for (destination, source, port) in connections {
            let connection = Connection::new((destination, 8080).into(), (source, port).into());
            let name = &*listener.filter_chain(&connection).unwrap().name;
            let expected = expected(&chains, destination, source, port);
            prop_assert_eq!(name, expected.map_or("default".to_owned(), |index| index.to_string()));
        }
    }
}
