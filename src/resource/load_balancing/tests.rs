use serde::Serialize;

use super::*;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{cluster::LbConfig, load_balancing_policy::Policy},
            core::v3 as core,
        },
        extensions::load_balancing_policies::round_robin::v3 as round_robin,
    },
    udpa, xds,
};
use crate::resource::{Extension, Registry};

fn any(name: &str, message: &impl Message) -> google::Any {
    google::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() }
}

fn lb(name: &str, message: &impl Message) -> google::Any {
    any(&format!("{PREFIX}{name}"), message)
}

fn list(policies: impl IntoIterator<Item = google::Any>) -> cluster::LoadBalancingPolicy {
    let policy = |any| Policy {
        typed_extension_config: Some(core::TypedExtensionConfig {
            name: String::new(),
            typed_config: Some(any),
        }),
    };
    cluster::LoadBalancingPolicy { policies: policies.into_iter().map(policy).collect() }
}

fn parse_list(policies: impl IntoIterator<Item = google::Any>) -> Result<LbPolicy, Invalid> {
    // The older field is not looked at (decisions on C9).
    let from = cluster::Cluster {
        load_balancing_policy: Some(list(policies)),
        lb_policy: cluster::cluster::LbPolicy::LoadBalancingPolicyConfig as i32,
        ..Default::default()
    };
    LbPolicy::parse(&from, &Context::new())
}

fn parse_legacy(
    policy: cluster::cluster::LbPolicy,
    lb_config: Option<LbConfig>,
) -> Result<LbPolicy, Invalid> {
    let from = cluster::Cluster { lb_policy: policy as i32, lb_config, ..Default::default() };
    LbPolicy::parse(&from, &Context::new())
}

fn ring(minimum_ring_size: u32, maximum_ring_size: u32) -> LbPolicy {
    LbPolicy::RingHash(RingHash { minimum_ring_size, maximum_ring_size })
}

fn round_robin() -> google::Any {
    lb("round_robin.v3.RoundRobin", &round_robin::RoundRobin::default())
}

fn size(value: u64) -> Option<google::UInt64Value> {
    Some(google::UInt64Value { value })
}

const AT: &str = "load_balancing_policy.policies[0].typed_extension_config";

#[test]
fn c6_round_robin_picks_a_locality_first() {
    let parsed = parse_legacy(cluster::cluster::LbPolicy::RoundRobin, None).unwrap();
    assert_eq!(parsed, in_each_locality(LbPolicy::RoundRobin));
    assert_eq!(
        serde_json::to_string(&parsed).unwrap(),
        r#"{"wrr_locality":{"endpoint_picking_policy":"round_robin"}}"#
    );
}

#[test]
fn c7_c13_ring_sizes_are_bounded_in_both_forms() {
    use cluster::cluster::RingHashLbConfig;
    for (min, max, expected) in [
        (None, None, Ok(ring(1024, 8_388_608))),
        (size(1), size(8_388_608), Ok(ring(1, 8_388_608))),
        (size(7), size(7), Ok(ring(7, 7))),
        (size(0), None, Err("minimum_ring_size")),
        (None, size(0), Err("maximum_ring_size")),
        (size(8_388_609), None, Err("minimum_ring_size")),
        (None, size(u64::MAX), Err("maximum_ring_size")),
        (size(8), size(7), Err("minimum_ring_size")),
        (None, size(1023), Err("minimum_ring_size")),
    ] {
        let legacy =
            RingHashLbConfig { minimum_ring_size: min, maximum_ring_size: max, ..Default::default() };
        let legacy =
            parse_legacy(cluster::cluster::LbPolicy::RingHash, Some(LbConfig::RingHashLbConfig(legacy)));
        let message =
            ring_hash::RingHash { minimum_ring_size: min, maximum_ring_size: max, ..Default::default() };
        let new = parse_list([lb("ring_hash.v3.RingHash", &message)]);
        match expected {
            Ok(expected) => assert_eq!((legacy, new), (Ok(expected.clone()), Ok(expected))),
            Err(field) => {
                assert_eq!(legacy.unwrap_err().path(), format!("ring_hash_lb_config.{field}"));
                assert_eq!(new.unwrap_err().path(), format!("{AT}.typed_config.{field}"));
            }
        }
    }
    let unset = parse_legacy(cluster::cluster::LbPolicy::RingHash, None);
    assert_eq!(unset, Ok(ring(1024, 8_388_608)));
}

#[test]
fn c7_c13_hash_functions_other_than_xx_hash_are_rejected() {
    use cluster::cluster::{RingHashLbConfig, ring_hash_lb_config::HashFunction};
    let legacy = RingHashLbConfig { hash_function: HashFunction::MurmurHash2 as i32, ..Default::default() };
    let legacy = parse_legacy(cluster::cluster::LbPolicy::RingHash, Some(LbConfig::RingHashLbConfig(legacy)));
    assert_eq!(
        legacy.unwrap_err().to_string(),
        "ring_hash_lb_config.hash_function: only XX_HASH is supported"
    );
    for (hash_function, accepted) in [(0, true), (1, true), (2, false), (3, false)] {
        let message = ring_hash::RingHash { hash_function, ..Default::default() };
        assert_eq!(parse_list([lb("ring_hash.v3.RingHash", &message)]).is_ok(), accepted);
    }
}

#[test]
fn c8_c14_least_request_compares_2_to_10_endpoints() {
    use cluster::cluster::LeastRequestLbConfig;
    let table = [
        (None, Some(2)),
        (Some(2), Some(2)),
        (Some(10), Some(10)),
        (Some(1000), Some(10)),
        (Some(1), None),
        (Some(0), None),
    ];
    for (count, expected) in table {
        let choice_count = count.map(|value| google::UInt32Value { value });
        let legacy = parse_legacy(
            cluster::cluster::LbPolicy::LeastRequest,
            Some(LbConfig::LeastRequestLbConfig(LeastRequestLbConfig { choice_count })),
        );
        let message = least_request::LeastRequest { choice_count, ..Default::default() };
        let new = parse_list([lb("least_request.v3.LeastRequest", &message)]);
        match expected {
            Some(choice_count) => {
                let policy = LbPolicy::LeastRequest(LeastRequest { choice_count });
                assert_eq!((legacy, new), (Ok(in_each_locality(policy.clone())), Ok(policy)));
            }
            None => {
                assert_eq!(legacy.unwrap_err().path(), "least_request_lb_config.choice_count");
                assert_eq!(new.unwrap_err().path(), format!("{AT}.typed_config.choice_count"));
            }
        }
    }
}

#[test]
fn c9_other_policies_are_rejected_unless_the_newer_field_is_set() {
    use cluster::cluster::LbPolicy as Legacy;
    for policy in [Legacy::Random, Legacy::Maglev, Legacy::ClusterProvided, Legacy::LoadBalancingPolicyConfig]
    {
        let e = parse_legacy(policy, None).unwrap_err();
        assert_eq!(e.path(), "lb_policy");
        assert!(e.reason().starts_with(policy.as_str_name()), "{e}");
    }
    // Proxies want it of an aggregate cluster, whose policy counts for nothing here (A75-1).
    let custom = Some(cluster::cluster::ClusterDiscoveryType::ClusterType(Default::default()));
    let provided = Legacy::ClusterProvided.into();
    let aggregate =
        cluster::Cluster { cluster_discovery_type: custom, lb_policy: provided, ..Default::default() };
    assert!(LbPolicy::parse(&aggregate, &Context::new()).is_ok());
    let unknown = cluster::Cluster { lb_policy: 99, ..Default::default() };
    assert_eq!(LbPolicy::parse(&unknown, &Context::new()).unwrap_err().path(), "lb_policy");
    assert_eq!(parse_list([round_robin()]), Ok(LbPolicy::RoundRobin));
}

#[test]
fn c10_the_first_supported_policy_is_used() {
    let unknown = || any("a.Unknown", &google::Any::default());
    let other = || lb("maglev.v3.Maglev", &google::Any::default());
    let shuffle = pick_first::PickFirst { shuffle_address_list: true };
    let first = lb("pick_first.v3.PickFirst", &shuffle);
    let expected = LbPolicy::PickFirst(PickFirst { shuffle_address_list: true });
    assert_eq!(parse_list([unknown(), first, round_robin()]), Ok(expected));
    assert_eq!(
        parse_list([unknown(), other()]).unwrap_err().to_string(),
        "load_balancing_policy.policies: none is supported: a.Unknown, \
         envoy.extensions.load_balancing_policies.maglev.v3.Maglev"
    );
    assert_eq!(parse_list([]).unwrap_err().reason(), "none is supported: it is empty");
}

#[test]
fn c10_entries_without_a_configuration_are_rejected() {
    let mut from = list([round_robin()]);
    from.policies[0].typed_extension_config.as_mut().unwrap().typed_config = None;
    let e = first_supported(&from, &Context::new(), 0).unwrap_err();
    assert_eq!(e.to_string(), "policies[0].typed_extension_config.typed_config: must be set");
    from.policies[0].typed_extension_config = None;
    let e = first_supported(&from, &Context::new(), 0).unwrap_err();
    assert_eq!(e.to_string(), "policies[0].typed_extension_config: must be set");
}

#[test]
fn c11_policies_nest_16_deep_at_most() {
    let nested = |layers: usize| {
        let wrap = |child, _| {
            let policy = wrr_locality::WrrLocality { endpoint_picking_policy: Some(list([child])) };
            lb("wrr_locality.v3.WrrLocality", &policy)
        };
        parse_list([(1..layers).fold(round_robin(), wrap)])
    };
    assert_eq!(nested(2), Ok(in_each_locality(LbPolicy::RoundRobin)));
    assert!(nested(16).is_ok());
    let e = nested(17).unwrap_err();
    assert_eq!(e.reason(), "policies are nested deeper than 16");
    assert!(e.path().ends_with("endpoint_picking_policy"), "{e}");
}

#[test]
fn c12_bytes_that_are_no_message_are_rejected() {
    for name in ["pick_first.v3.PickFirst", "ring_hash.v3.RingHash", "wrr_locality.v3.WrrLocality"] {
        let mut any = lb(name, &google::Any::default());
        any.value = b"\xff"[..].into();
        assert_eq!(parse_list([any]).unwrap_err().path(), format!("{AT}.typed_config.value"));
    }
}

#[test]
fn c15_client_side_weights_have_the_defaults_of_a58() {
    let name = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin";
    let parsed = parse_list([lb(name, &client_side::ClientSideWeightedRoundRobin::default())]).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap()["client_side_weighted_round_robin"],
        serde_json::json!({
            "enable_oob_load_report": false, "oob_reporting_period": "10s", "blackout_period": "10s",
            "weight_expiration_period": "180s", "weight_update_period": "1s", "error_utilization_penalty": 1.0,
            "metric_names_for_computing_utilization": [],
        })
    );
    let duration = |seconds, nanos| Some(google::Duration { seconds, nanos });
    let short = client_side::ClientSideWeightedRoundRobin {
        weight_update_period: duration(0, 1),
        ..Default::default()
    };
    let LbPolicy::ClientSideWeightedRoundRobin(short) = parse_list([lb(name, &short)]).unwrap() else {
        panic!("another policy")
    };
    assert_eq!(short.weight_update_period, Duration::from_millis(100));
    for penalty in [-0.5, f32::NAN, f32::INFINITY] {
        let negative = client_side::ClientSideWeightedRoundRobin {
            error_utilization_penalty: Some(google::FloatValue { value: penalty }),
            ..Default::default()
        };
        let e = parse_list([lb(name, &negative)]).unwrap_err();
        assert_eq!(e.path(), format!("{AT}.typed_config.error_utilization_penalty"));
    }
    let negative =
        client_side::ClientSideWeightedRoundRobin { blackout_period: duration(-1, 0), ..Default::default() };
    let e = parse_list([lb(name, &negative)]).unwrap_err();
    assert_eq!(e.path(), format!("{AT}.typed_config.blackout_period.seconds"));
}

#[test]
fn c16_a_locality_policy_needs_a_policy_inside() {
    let name = "wrr_locality.v3.WrrLocality";
    let e = parse_list([lb(name, &wrr_locality::WrrLocality::default())]).unwrap_err();
    assert_eq!(e.to_string(), format!("{AT}.typed_config.endpoint_picking_policy: must be set"));
    let unknown = list([any("a.B", &google::Any::default())]);
    let e = parse_list([lb(name, &wrr_locality::WrrLocality { endpoint_picking_policy: Some(unknown) })]);
    assert_eq!(e.unwrap_err().path(), format!("{AT}.typed_config.endpoint_picking_policy.policies"));
}

/// A policy of an application.
#[derive(Debug, PartialEq, Serialize)]
struct Nearest {
    radius: f64,
}

impl Extension for Nearest {
    const TYPE_NAME: &'static str = "my.Nearest";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(settings) = payload else { return Err(Invalid::new("must be a TypedStruct")) };
        let radius = settings.get("radius").and_then(serde_json::Value::as_f64);
        Ok(Self { radius: radius.ok_or(Invalid::field("radius", "must be a number"))? })
    }
}

#[test]
fn c17_typed_structs_are_policies_that_the_application_knows() {
    let kind = Some(google::value::Kind::NumberValue(3.0));
    let config = google::Struct { fields: [("radius".to_owned(), google::Value { kind })].into() };
    let type_url = "type.googleapis.com/my.Nearest".to_owned();
    let new = xds::r#type::v3::TypedStruct { type_url: type_url.clone(), value: Some(config.clone()) };
    let old = udpa::r#type::v1::TypedStruct { type_url: type_url.clone(), value: Some(config) };
    let empty = xds::r#type::v3::TypedStruct { type_url, value: None };
    let registry = Registry::new().with_lb_policy::<Nearest>();
    let cx = Context::new().with_registry(&registry);
    for typed in [any("xds.type.v3.TypedStruct", &new), any("udpa.type.v1.TypedStruct", &old)] {
        let from = list([typed, round_robin()]);
        assert_eq!(first_supported(&from, &Context::new(), 0), Ok(LbPolicy::RoundRobin));
        let parsed = first_supported(&from, &cx, 0).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), r#"{"custom":{"my.Nearest":{"radius":3.0}}}"#);
        let LbPolicy::Custom(custom) = &parsed else { panic!("{parsed:?}") };
        assert_eq!((custom.type_name(), custom.get()), ("my.Nearest", Some(&Nearest { radius: 3.0 })));
    }
    let rejected = first_supported(&list([any("xds.type.v3.TypedStruct", &empty)]), &cx, 0).unwrap_err();
    let at = "policies[0].typed_extension_config.typed_config.radius";
    assert_eq!(rejected.to_string(), format!("{at}: must be a number"));
}
