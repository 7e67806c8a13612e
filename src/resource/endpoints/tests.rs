use super::*;
use crate::pb::{
    envoy::{
        config::{
            core::v3::{self as core, address::Address as Kind, socket_address::PortSpecifier},
            endpoint::v3::{
                self as endpoint, LbEndpoint, LocalityLbEndpoints, endpoint::AdditionalAddress,
                lb_endpoint::HostIdentifier,
            },
        },
        r#type::v3::FractionalPercent,
    },
    google::protobuf as google,
};

fn parse(from: &endpoint::ClusterLoadAssignment) -> Result<ClusterLoadAssignment, String> {
    ClusterLoadAssignment::parse(&from.encode_to_vec().into(), &Context::new()).map_err(|e| e.to_string())
}

fn assignment(endpoints: impl IntoIterator<Item = LocalityLbEndpoints>) -> endpoint::ClusterLoadAssignment {
    endpoint::ClusterLoadAssignment {
        cluster_name: "shop".into(),
        endpoints: endpoints.into_iter().collect(),
        policy: None,
    }
}

fn parse_localities(
    endpoints: impl IntoIterator<Item = LocalityLbEndpoints>,
) -> Result<ClusterLoadAssignment, String> {
    parse(&assignment(endpoints))
}

fn value(value: u32) -> Option<google::UInt32Value> {
    Some(google::UInt32Value { value })
}

fn locality(
    zone: &str,
    priority: u32,
    lb_endpoints: impl IntoIterator<Item = LbEndpoint>,
) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        locality: Some(core::Locality { zone: zone.into(), ..Default::default() }),
        load_balancing_weight: value(1),
        lb_endpoints: lb_endpoints.into_iter().collect(),
        priority,
        ..Default::default()
    }
}

fn address(ip: &str, port: u32) -> core::Address {
    let socket = core::SocketAddress {
        address: ip.into(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    core::Address { address: Some(Kind::SocketAddress(socket)) }
}

fn host(address: Option<core::Address>) -> LbEndpoint {
    let endpoint = endpoint::Endpoint { address, ..Default::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

fn at(ip: &str) -> LbEndpoint {
    host(Some(address(ip, 80)))
}

fn with_additional(ip: &str, additional: &[&str]) -> LbEndpoint {
    let endpoint = endpoint::Endpoint {
        address: Some(address(ip, 80)),
        additional_addresses: additional
            .iter()
            .map(|ip| AdditionalAddress { address: Some(address(ip, 80)) })
            .collect(),
        ..Default::default()
    };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() }
}

fn metadata(key: &str, field: &str, kind: google::value::Kind) -> Option<core::Metadata> {
    let fields = [(field.to_owned(), google::Value { kind: Some(kind) })].into();
    let filter_metadata = [(key.to_owned(), google::Struct { fields })].into();
    Some(core::Metadata { filter_metadata, ..Default::default() })
}

fn zones(of: &ClusterLoadAssignment) -> Vec<Vec<&str>> {
    of.priorities.iter().map(|p| p.localities.iter().map(|l| l.locality.zone()).collect()).collect()
}

#[test]
fn the_json_has_addresses_names_and_categories_as_written() {
    let mut endpoint = with_additional("10.0.0.1", &["2001:db8::1"]);
    endpoint.health_status = 3;
    endpoint.load_balancing_weight = value(7);
    let Some(HostIdentifier::Endpoint(inner)) = &mut endpoint.host_identifier else { panic!("no endpoint") };
    inner.hostname = "a.shop.local".into();
    endpoint.metadata = metadata("envoy.lb", "hash_key", google::value::Kind::StringValue("k".into()));
    let mut from = assignment([locality("z", 0, [endpoint])]);
    let drop = policy::DropOverload {
        category: "throttle".into(),
        drop_percentage: Some(FractionalPercent { numerator: 5, denominator: 0 }),
    };
    from.policy = Some(endpoint::cluster_load_assignment::Policy {
        drop_overloads: vec![drop],
        overprovisioning_factor: value(140),
    });
    assert_eq!(
        serde_json::to_value(parse(&from).unwrap()).unwrap(),
        serde_json::json!({
            "cluster_name": "shop",
            "priorities": [{"localities": [{
                "locality": {"region": "", "zone": "z", "sub_zone": ""},
                "weight": 1,
                "endpoints": [{
                    "address": "10.0.0.1:80", "additional_addresses": ["[2001:db8::1]:80"],
                    "health": "DRAINING", "weight": 7, "hostname": "a.shop.local", "hash_key": "k",
                    "metadata": {"envoy.lb": {"hash_key": "k"}},
                }],
                "metadata": {},
            }]}],
            "drops": [{"category": "throttle", "requests_per_million": 50_000}],
            "remarks": {"not_executed": ["ClusterLoadAssignment.Policy.overprovisioning_factor"]},
        })
    );
    assert_eq!((size_of::<Endpoint>(), size_of::<LocalityEndpoints>()), (32, 56));
}

#[test]
fn g5_rejects_bytes_that_are_no_message() {
    let e = ClusterLoadAssignment::parse(&Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
    assert!(e.path().is_empty() && e.reason().starts_with("not a valid message"), "{e}");
}

#[test]
fn g6_rejects_an_empty_name() {
    let unnamed = endpoint::ClusterLoadAssignment::default();
    assert_eq!(parse(&unnamed).unwrap_err(), "cluster_name: must not be empty");
}

#[test]
fn e1_accepts_an_assignment_without_endpoints() {
    let parsed = parse_localities([]).unwrap();
    assert!(&*parsed.cluster_name == "shop" && parsed.priorities.is_empty());
    let parsed = parse_localities([locality("z", 0, [])]).unwrap();
    assert_eq!((zones(&parsed), parsed.endpoints().count()), (vec![vec!["z"]], 0));
}

#[test]
fn e2_accepts_a_locality_with_its_location() {
    let empty = LocalityLbEndpoints { locality: Some(core::Locality::default()), ..locality("", 0, []) };
    assert_eq!(zones(&parse_localities([empty, locality("a", 0, [])]).unwrap()), [["", "a"]]);
}

#[test]
fn e2_rejects_a_locality_that_does_not() {
    let nowhere = LocalityLbEndpoints { locality: None, ..locality("", 0, []) };
    let e = parse_localities([locality("a", 0, []), nowhere]).unwrap_err();
    assert_eq!(e, "endpoints[1].locality: must be set");
}

#[test]
fn e3_accepts_localities_with_a_weight() {
    let heavy = LocalityLbEndpoints { load_balancing_weight: value(7), ..locality("a", 0, []) };
    let parsed = parse_localities([heavy, locality("b", 0, [])]).unwrap();
    assert_eq!(parsed.localities().map(|locality| locality.weight.get()).collect::<Vec<_>>(), [7, 1]);
}

#[test]
fn e2_e3_ignores_localities_without_weight_before_any_other_check() {
    for weight in [None, value(0)] {
        let bad = LocalityLbEndpoints {
            locality: None,
            load_balancing_weight: weight,
            ..locality("", 7, [LbEndpoint::default()])
        };
        let parsed = parse_localities([bad.clone(), locality("a", 0, [at("10.0.0.1")])]).unwrap();
        assert_eq!(zones(&parsed), [["a"]]);
        // Nothing of it can be used: the endpoint is none.
        assert!(parsed.unweighted_localities.is_empty());
        let [part] = parsed.remarks.left_out() else { panic!("{:?}", parsed.remarks) };
        let reason = "endpoints[0].lb_endpoints[0].endpoint: must be set; the locality has no weight";
        assert_eq!(part.to_string(), reason);
        // Its priority does not fill a gap either.
        let filler = LocalityLbEndpoints { priority: 0, ..bad };
        let e = parse_localities([filler, locality("a", 1, [])]).unwrap_err();
        assert_eq!(e, "endpoints[1].priority: there is priority 1, but no priority 0");
    }
}

#[test]
fn e3_accepts_localities_without_a_weight_and_keeps_them_apart_with_the_reason() {
    let of = |weight| {
        let unweighted = LocalityLbEndpoints {
            load_balancing_weight: weight,
            ..locality("b", 7, [at("10.0.0.2"), at("10.0.0.3")])
        };
        parse_localities([locality("a", 0, [at("10.0.0.1")]), unweighted]).unwrap()
    };
    let unset = of(None);
    assert_eq!(zones(&unset), [["a"]]);
    let [kept] = &*unset.unweighted_localities else { panic!("{unset:?}") };
    assert_eq!((kept.locality.zone(), kept.priority, kept.endpoints.len()), ("b", 7, 2));
    assert_eq!(
        unset.remarks.left_out()[0].to_string(),
        "endpoints[1]: no load_balancing_weight (endpoints: 2)"
    );
    let json = serde_json::to_value(&unset).unwrap();
    assert_eq!(json["unweighted_localities"][0]["endpoints"][0]["address"], "10.0.0.2:80");
    assert_eq!(json["remarks"]["left_out"][0]["path"], "endpoints[1]");
    // Consul has neither.
    let anonymous = LocalityLbEndpoints {
        locality: None,
        load_balancing_weight: None,
        ..locality("b", 0, [at("10.0.0.2")])
    };
    let parsed = parse_localities([anonymous]).unwrap();
    assert_eq!(parsed.unweighted_localities[0].locality, Locality::new("", "", ""));
    assert_eq!(parsed.unweighted_localities[0].endpoints.len(), 1);
    let reason = "endpoints[0]: no load_balancing_weight, and no locality (endpoints: 1)";
    assert_eq!(parsed.remarks.left_out()[0].to_string(), reason);
    // A weight of 0 is the wish not to use it.
    let zero = of(value(0));
    assert!(zero.unweighted_localities.is_empty());
    let reason = "endpoints[1].load_balancing_weight: is 0; the locality has no weight";
    assert_eq!(zero.remarks.left_out()[0].to_string(), reason);
}

fn of_leds(zone: &str, priority: u32, name: &str) -> LocalityLbEndpoints {
    use core::{AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier};
    use endpoint::{LedsClusterLocalityConfig, locality_lb_endpoints::LbConfig};
    let ads = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}));
    let leds_config = Some(ConfigSource { config_source_specifier: ads, ..ConfigSource::default() });
    let leds = LedsClusterLocalityConfig { leds_config, leds_collection_name: name.into() };
    let lb_config = Some(LbConfig::LedsClusterLocalityConfig(leds));
    LocalityLbEndpoints { lb_config, ..locality(zone, priority, [at("10.0.0.9")]) }
}

#[test]
fn a95_2_the_endpoints_of_a_locality_are_in_the_collection_alone_that_it_names() {
    for name in [
        "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/shop/*?x=1",
        "xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/shop",
        "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/*#alt=xdstp://b/envoy.config.endpoint.v3.LbEndpoint/*",
    ] {
        let parsed = parse_localities([of_leds("b", 1, name), locality("a", 0, [at("10.0.0.1")])]).unwrap();
        let [leds] = &*parsed.leds_localities else { panic!("{parsed:?}") };
        assert_eq!((leds.priority, leds.locality.zone(), &*leds.collection), (1, "b", name));
        assert_eq!(parsed.endpoints().count(), 1, "its own endpoints do not matter");
        assert!(parsed.remarks.is_empty());
    }
}

#[test]
fn a95_2_a_collection_that_cannot_be_watched_is_left_out_by_name() {
    let reason = "is neither a glob collection nor a list collection of envoy.config.endpoint.v3.LbEndpoint";
    for name in [
        "shop",
        "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/shop",
        "xdstp://a/T/*",
        "xdstp://a/TCollection/x",
        "xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/shop#entry=e",
    ] {
        let parsed = parse_localities([of_leds("a", 0, name)]).unwrap();
        assert!(parsed.leds_localities.is_empty() && parsed.endpoints().next().is_none());
        let at = "endpoints[0].leds_cluster_locality_config.leds_collection_name";
        assert_eq!(parsed.remarks.left_out()[0].to_string(), format!("{at}: {name:?} {reason}"));
    }
}

#[test]
fn a95_2_e8_e9_members_that_break_a_rule_together_are_left_out() {
    let name = "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/shop/*";
    let parsed = parse_localities([of_leds("b", 0, name), locality("a", 0, [at("10.0.0.1")])]).unwrap();
    let member = |ip, weight| {
        let bytes = LbEndpoint { load_balancing_weight: value(weight), ..at(ip) }.encode_to_vec();
        Endpoint::parse(&bytes.into(), &Context::new()).unwrap()
    };
    let members = vec![member("10.0.0.1", 1), member("10.0.0.2", 7), member("10.0.0.3", u32::MAX)];
    let locality = parsed.leds_localities[0].locality.clone();
    let completed = parsed.with_leds([((0, &locality), members)].into());
    let addresses: Vec<_> = completed.endpoints().map(|endpoint| endpoint.address().to_string()).collect();
    assert_eq!(addresses, ["10.0.0.2:80", "10.0.0.1:80"]);
    let left_out: Vec<_> = completed.remarks.left_out().iter().map(|part| part.reason.to_string()).collect();
    assert!(left_out[0].ends_with("10.0.0.1:80 is already the address of another endpoint"), "{left_out:?}");
    assert!(left_out[1].ends_with("the weights of the endpoints are over 4294967295"), "{left_out:?}");
}

fn weighted(zone: &str, priority: u32, weight: u32) -> LocalityLbEndpoints {
    LocalityLbEndpoints { load_balancing_weight: value(weight), ..locality(zone, priority, []) }
}

#[test]
fn e4_accepts_weights_that_add_up_to_u32_max_in_each_priority() {
    let parsed =
        parse_localities([weighted("a", 0, u32::MAX - 1), weighted("b", 0, 1), weighted("c", 1, u32::MAX)]);
    let weights = parsed.unwrap().localities().map(|locality| locality.weight.get()).collect::<Vec<_>>();
    assert_eq!(weights, [u32::MAX - 1, 1, u32::MAX]);
}

#[test]
fn e4_rejects_weights_that_add_up_to_more() {
    let e = parse_localities([weighted("a", 0, 1), weighted("b", 1, u32::MAX), weighted("c", 1, 1)]);
    assert_eq!(
        e.unwrap_err(),
        "endpoints: the weights of the localities of priority 1 add up to 4294967296, which is over 4294967295"
    );
}

#[test]
fn e5_accepts_a_locality_in_several_priorities() {
    let parsed = parse_localities([locality("a", 0, []), locality("a", 1, [])]).unwrap();
    assert_eq!(zones(&parsed), [["a"], ["a"]]);
}

#[test]
fn e5_rejects_a_locality_twice_in_one_priority() {
    let e = parse_localities([locality("b", 1, []), locality("a", 0, []), locality("b", 1, [])]).unwrap_err();
    let twice = r#"{region="", zone="b", sub_zone=""} is there twice in priority 1"#;
    assert_eq!(e, format!("endpoints[2].locality: {twice}"));
}

#[test]
fn e6_accepts_priorities_without_gaps_in_any_order() {
    let parsed =
        parse_localities([locality("b", 1, []), locality("a", 0, []), locality("c", 1, [])]).unwrap();
    assert_eq!(zones(&parsed), [vec!["a"], vec!["b", "c"]]);
}

#[test]
fn e6_rejects_gaps_between_priorities() {
    let e = parse_localities([locality("a", 0, []), locality("c", 2, [])]).unwrap_err();
    assert_eq!(e, "endpoints[1].priority: there is priority 2, but no priority 1");
    let e = parse_localities([locality("a", u32::MAX, [])]).unwrap_err();
    assert_eq!(e, "endpoints[0].priority: there is priority 4294967295, but no priority 0");
}

fn weight_of(weight: Option<google::UInt32Value>) -> Result<u32, String> {
    let endpoint = LbEndpoint { load_balancing_weight: weight, ..at("10.0.0.1") };
    let parsed = parse_localities([locality("a", 0, [endpoint])])?;
    Ok(parsed.endpoints().next().unwrap().weight.get())
}

#[test]
fn e7_accepts_endpoints_with_a_weight_and_1_is_the_default() {
    assert_eq!((weight_of(None), weight_of(value(9))), (Ok(1), Ok(9)));
}

#[test]
fn e7_rejects_an_endpoint_of_weight_0() {
    assert_eq!(
        weight_of(value(0)).unwrap_err(),
        "endpoints[0].lb_endpoints[0].load_balancing_weight: must not be 0; leave out the endpoint instead"
    );
}

fn of_weight(ip: &str, weight: u32) -> LbEndpoint {
    LbEndpoint { load_balancing_weight: value(weight), ..at(ip) }
}

#[test]
fn e8_accepts_weights_that_add_up_to_u32_max_in_each_locality() {
    let most = [of_weight("10.0.0.1", u32::MAX - 1), of_weight("10.0.0.2", 1)];
    let parsed = parse_localities([locality("a", 0, most), locality("b", 0, [of_weight("10.0.0.3", 1)])]);
    let weights = parsed.unwrap().endpoints().map(|endpoint| endpoint.weight.get()).collect::<Vec<_>>();
    assert_eq!(weights, [u32::MAX - 1, 1, 1]);
}

#[test]
fn e8_rejects_weights_that_add_up_to_more() {
    let over = [of_weight("10.0.0.1", u32::MAX), of_weight("10.0.0.2", 1)];
    let e = parse_localities([locality("a", 0, over)]).unwrap_err();
    let reason = "the weights of the endpoints add up to 4294967296, which is over 4294967295";
    assert_eq!(e, format!("endpoints[0].lb_endpoints: {reason}"));
}

mod endpoint_rules;
mod properties;
