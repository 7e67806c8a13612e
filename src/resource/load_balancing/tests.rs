mod subsetting;

use serde::Serialize;

use super::*;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{cluster::LbConfig, load_balancing_policy::Policy},
            core::v3 as core,
        },
        extensions::load_balancing_policies::{
            ring_hash::v3 as ring_message, round_robin::v3 as round_robin,
        },
    },
    udpa, xds,
};
use crate::resource::{Extension, Registry};

fn any(name: &str, message: &impl Message) -> google::Any {
    google::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() }
}

fn lb(name: &str, message: &impl Message) -> google::Any {
    any(&format!("envoy.extensions.load_balancing_policies.{name}"), message)
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

fn choose(from: cluster::Cluster) -> Result<LbPolicy, Invalid> {
    let choice = Choice {
        list: from.load_balancing_policy,
        legacy: from.lb_policy,
        config: from.lb_config,
        common: from.common_lb_config,
        is_of_custom_type: matches!(
            from.cluster_discovery_type,
            Some(cluster::cluster::ClusterDiscoveryType::ClusterType(_))
        ),
    };
    LbPolicy::parse(&choice, &Context::new())
}

fn parse_list(policies: impl IntoIterator<Item = google::Any>) -> Result<LbPolicy, Invalid> {
    // The older field is not looked at (C9).
    let from = cluster::Cluster {
        load_balancing_policy: Some(list(policies)),
        lb_policy: cluster::cluster::LbPolicy::LoadBalancingPolicyConfig as i32,
        ..Default::default()
    };
    choose(from)
}

fn parse_legacy(
    policy: cluster::cluster::LbPolicy,
    lb_config: Option<LbConfig>,
) -> Result<LbPolicy, Invalid> {
    let from = cluster::Cluster { lb_policy: policy as i32, lb_config, ..Default::default() };
    choose(from)
}

fn ring(minimum_ring_size: u32, maximum_ring_size: u32) -> LbPolicy {
    LbPolicy::RingHash(Box::new(RingHash { minimum_ring_size, maximum_ring_size, request_hash_header: None }))
}

fn round_robin() -> google::Any {
    lb("round_robin.v3.RoundRobin", &round_robin::RoundRobin::default())
}

fn size(value: u64) -> Option<google::UInt64Value> {
    Some(google::UInt64Value { value })
}

const AT: &str = "load_balancing_policy.policies[0].typed_extension_config";

#[test]
fn c6_accepts_round_robin_inside_a_locality_by_weight() {
    let parsed = parse_legacy(cluster::cluster::LbPolicy::RoundRobin, None).unwrap();
    assert_eq!(parsed, in_each_locality(LbPolicy::RoundRobin));
    assert_eq!(
        serde_json::to_string(&parsed).unwrap(),
        r#"{"wrr_locality":{"endpoint_picking_policy":"round_robin"}}"#
    );
}

/// The same sizes in the older form and in the newer one.
fn ring_in_both_forms(
    minimum_ring_size: Option<google::UInt64Value>,
    maximum_ring_size: Option<google::UInt64Value>,
) -> [Result<LbPolicy, Invalid>; 2] {
    use cluster::cluster::RingHashLbConfig;
    let older = RingHashLbConfig { minimum_ring_size, maximum_ring_size, ..Default::default() };
    let newer = ring_message::RingHash { minimum_ring_size, maximum_ring_size, ..Default::default() };
    [
        parse_legacy(cluster::cluster::LbPolicy::RingHash, Some(LbConfig::RingHashLbConfig(older))),
        parse_list([lb("ring_hash.v3.RingHash", &newer)]),
    ]
}

#[test]
fn c7_c13_accepts_ring_sizes_between_1_and_8388608() {
    for (min, max, expected) in [
        (None, None, ring(1024, 8_388_608)),
        (size(1), size(8_388_608), ring(1, 8_388_608)),
        (size(7), size(7), ring(7, 7)),
    ] {
        assert_eq!(ring_in_both_forms(min, max), [Ok(expected.clone()), Ok(expected)]);
    }
    let unset = parse_legacy(cluster::cluster::LbPolicy::RingHash, None);
    assert_eq!(unset, Ok(ring(1024, 8_388_608)));
}

#[test]
fn c7_c13_rejects_other_ring_sizes() {
    let range = "must be between 1 and 8388608";
    for (min, max, field, reason) in [
        (size(0), None, "minimum_ring_size", range),
        (None, size(0), "maximum_ring_size", range),
        (size(8_388_609), None, "minimum_ring_size", range),
        (None, size(u64::MAX), "maximum_ring_size", range),
        (size(8), size(7), "minimum_ring_size", "must be at most maximum_ring_size, is 8 > 7"),
        (None, size(1023), "minimum_ring_size", "must be at most maximum_ring_size, is 1024 > 1023"),
    ] {
        let [older, newer] = ring_in_both_forms(min, max).map(Result::unwrap_err);
        assert_eq!(older.path(), format!("ring_hash_lb_config.{field}"));
        assert_eq!(newer.path(), format!("{AT}.typed_config.{field}"));
        assert!(older.reason().starts_with(reason) && newer.reason() == older.reason(), "{older}");
    }
}

/// The older form and the newer one number the functions differently.
fn hash_function(older: i32, newer: i32) -> [Result<LbPolicy, Invalid>; 2] {
    let older = cluster::cluster::RingHashLbConfig { hash_function: older, ..Default::default() };
    let newer = ring_message::RingHash { hash_function: newer, ..Default::default() };
    [
        parse_legacy(cluster::cluster::LbPolicy::RingHash, Some(LbConfig::RingHashLbConfig(older))),
        parse_list([lb("ring_hash.v3.RingHash", &newer)]),
    ]
}

#[test]
fn c7_c13_accepts_xx_hash_and_the_default() {
    // The default of the newer form is Envoy's, which is XX_HASH: as in C-core.
    for (older, newer) in [(0, 0), (0, 1)] {
        assert_eq!(hash_function(older, newer), [Ok(ring(1024, 8_388_608)), Ok(ring(1024, 8_388_608))]);
    }
}

#[test]
fn c7_c13_rejects_other_hash_functions() {
    for (older, newer) in [(1, 2), (9, 3)] {
        let [older, newer] = hash_function(older, newer).map(|parsed| parsed.unwrap_err().to_string());
        assert_eq!(older, "ring_hash_lb_config.hash_function: only XX_HASH is supported");
        assert_eq!(newer, format!("{AT}.typed_config.hash_function: only XX_HASH is supported"));
    }
}

/// The same count in the older form and in the newer one.
fn least_request_in_both_forms(count: Option<u32>) -> [Result<LbPolicy, Invalid>; 2] {
    let choice_count = count.map(|value| google::UInt32Value { value });
    let older = cluster::cluster::LeastRequestLbConfig { choice_count };
    let newer = least_request::LeastRequest { choice_count, ..Default::default() };
    [
        parse_legacy(cluster::cluster::LbPolicy::LeastRequest, Some(LbConfig::LeastRequestLbConfig(older))),
        parse_list([lb("least_request.v3.LeastRequest", &newer)]),
    ]
}

#[test]
fn c8_c14_accepts_least_request_among_2_to_10_endpoints() {
    // A48 has it, though C-core has not.
    for (count, choice_count) in
        [(None, 2), (Some(2), 2), (Some(10), 10), (Some(11), 10), (Some(u32::MAX), 10)]
    {
        let policy = LbPolicy::LeastRequest(LeastRequest { choice_count });
        let expected = [Ok(in_each_locality(policy.clone())), Ok(policy)];
        assert_eq!(least_request_in_both_forms(count), expected);
    }
    let unset = parse_legacy(cluster::cluster::LbPolicy::LeastRequest, None);
    assert_eq!(unset, Ok(in_each_locality(LbPolicy::LeastRequest(LeastRequest { choice_count: 2 }))));
}

#[test]
fn c8_c14_rejects_least_request_among_fewer_than_2() {
    for count in [0, 1] {
        let [older, newer] =
            least_request_in_both_forms(Some(count)).map(|parsed| parsed.unwrap_err().to_string());
        assert_eq!(older, format!("least_request_lb_config.choice_count: must be at least 2, is {count}"));
        assert_eq!(newer, format!("{AT}.typed_config.choice_count: must be at least 2, is {count}"));
    }
}

#[test]
fn c9_rejects_other_policies_of_the_older_field() {
    use cluster::cluster::LbPolicy as Legacy;
    for policy in [Legacy::Random, Legacy::ClusterProvided, Legacy::LoadBalancingPolicyConfig] {
        let e = parse_legacy(policy, None).unwrap_err();
        let name = policy.as_str_name();
        assert_eq!(
            e.to_string(),
            format!("lb_policy: {name} is not supported without a load_balancing_policy")
        );
    }
    let unknown = cluster::Cluster { lb_policy: 99, ..Default::default() };
    let e = choose(unknown).unwrap_err();
    assert_eq!(e.to_string(), "lb_policy: 99 is no known policy");
}

/// The older form of Envoy's policy, whose weights of localities are in the settings that all policies share.
#[test]
fn c9_accepts_maglev_in_the_older_field() {
    use cluster::cluster::{
        CommonLbConfig, LbPolicy as Legacy, MaglevLbConfig, common_lb_config::LocalityConfigSpecifier,
    };
    let maglev =
        |table_size, locality_weighted| Ok(LbPolicy::Maglev(Maglev { table_size, locality_weighted }));
    assert_eq!(parse_legacy(Legacy::Maglev, None), maglev(65_537, false));
    let of_size = |value| Some(LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: size(value) }));
    assert_eq!(parse_legacy(Legacy::Maglev, of_size(251)), maglev(251, false));
    let e = parse_legacy(Legacy::Maglev, of_size(250)).unwrap_err();
    assert_eq!(e.to_string(), "maglev_lb_config.table_size: must be a prime of at most 5000011, is 250");
    let weighted = LocalityConfigSpecifier::LocalityWeightedLbConfig(Default::default());
    let from = cluster::Cluster {
        lb_policy: Legacy::Maglev.into(),
        common_lb_config: Some(CommonLbConfig {
            locality_config_specifier: Some(weighted),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert_eq!(choose(from), maglev(65_537, true));
}

#[test]
fn c9_accepts_any_policy_of_the_older_field_beside_the_newer_one() {
    use cluster::cluster::LbPolicy as Legacy;
    for policy in
        [Legacy::LoadBalancingPolicyConfig as i32, Legacy::Maglev as i32, Legacy::RingHash as i32, 99]
    {
        let from = cluster::Cluster {
            load_balancing_policy: Some(list([round_robin()])),
            lb_policy: policy,
            ..Default::default()
        };
        assert_eq!(choose(from), Ok(LbPolicy::RoundRobin));
    }
}

#[test]
fn c9_a75_accepts_a_policy_that_the_aggregate_cluster_provides() {
    // Proxies want it of an aggregate cluster, whose policy counts for nothing here.
    let custom = Some(cluster::cluster::ClusterDiscoveryType::ClusterType(Default::default()));
    let provided = cluster::cluster::LbPolicy::ClusterProvided.into();
    let aggregate =
        cluster::Cluster { cluster_discovery_type: custom, lb_policy: provided, ..Default::default() };
    assert_eq!(choose(aggregate), Ok(in_each_locality(LbPolicy::RoundRobin)));
}

#[test]
fn c10_a52_accepts_the_first_policy_that_is_supported() {
    let shuffle = pick_first::PickFirst { shuffle_address_list: true };
    let first = lb("pick_first.v3.PickFirst", &shuffle);
    let expected = LbPolicy::PickFirst(PickFirst { shuffle_address_list: true });
    assert_eq!(parse_list([unknown(), first.clone(), round_robin()]), Ok(expected));
    assert_eq!(parse_list([round_robin(), first, broken("ring_hash.v3.RingHash")]), Ok(LbPolicy::RoundRobin));
}

#[test]
fn c10_a52_rejects_a_list_of_which_none_is_supported() {
    let other = lb("subset.v3.Subset", &google::Any::default());
    assert_eq!(
        parse_list([unknown(), other]).unwrap_err().to_string(),
        "load_balancing_policy.policies: none is supported: a.Unknown, \
         envoy.extensions.load_balancing_policies.subset.v3.Subset"
    );
    let e = parse_list([]).unwrap_err();
    assert_eq!(e.to_string(), "load_balancing_policy.policies: none is supported: it is empty");
}

fn unknown() -> google::Any {
    any("a.Unknown", &google::Any::default())
}

fn broken(name: &str) -> google::Any {
    google::Any { value: b"\xff"[..].into(), ..lb(name, &google::Any::default()) }
}

#[test]
fn c10_rejects_entries_without_a_configuration() {
    let mut from = list([round_robin()]);
    from.policies[0].typed_extension_config.as_mut().unwrap().typed_config = None;
    let e = first_supported(&from, &Context::new(), 0).unwrap_err();
    assert_eq!(e.to_string(), "policies[0].typed_extension_config.typed_config: must be set");
    from.policies[0].typed_extension_config = None;
    let e = first_supported(&from, &Context::new(), 0).unwrap_err();
    assert_eq!(e.to_string(), "policies[0].typed_extension_config: must be set");
}

/// Policies for localities, one in another, and a round robin in the innermost.
fn nested(layers: usize) -> Result<LbPolicy, Invalid> {
    let wrap = |child, _| {
        let policy = wrr_locality::WrrLocality { endpoint_picking_policy: Some(list([child])) };
        lb("wrr_locality.v3.WrrLocality", &policy)
    };
    parse_list([(1..layers).fold(round_robin(), wrap)])
}

#[test]
fn c11_accepts_policies_that_are_nested_16_deep() {
    let expected = (1..16).fold(LbPolicy::RoundRobin, |inner, _| in_each_locality(inner));
    assert_eq!(nested(16), Ok(expected));
}

#[test]
fn c11_rejects_policies_that_are_nested_deeper() {
    let e = nested(17).unwrap_err();
    assert_eq!(e.reason(), "policies are nested deeper than 16");
    assert!(e.path().starts_with(AT) && e.path().ends_with("endpoint_picking_policy"), "{e}");
}

#[test]
fn c12_c18_accepts_policies_with_settings_and_without() {
    for shuffle_address_list in [true, false] {
        let message = pick_first::PickFirst { shuffle_address_list };
        let expected = LbPolicy::PickFirst(PickFirst { shuffle_address_list });
        assert_eq!(parse_list([lb("pick_first.v3.PickFirst", &message)]), Ok(expected));
    }
    assert_eq!(parse_list([round_robin()]), Ok(LbPolicy::RoundRobin));
}

#[test]
fn c12_c18_rejects_settings_that_are_no_message() {
    for name in [
        "pick_first.v3.PickFirst",
        "ring_hash.v3.RingHash",
        "least_request.v3.LeastRequest",
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        "wrr_locality.v3.WrrLocality",
    ] {
        // Also though the next one could be used (A52-2).
        let e = parse_list([broken(name), round_robin()]).unwrap_err();
        assert_eq!(e.path(), format!("{AT}.typed_config.value"));
        assert!(e.reason().starts_with("not a valid message"), "{e}");
    }
}

#[test]
fn c18_ignores_the_body_of_round_robin() {
    assert_eq!(parse_list([broken("round_robin.v3.RoundRobin")]), Ok(LbPolicy::RoundRobin));
}

const CLIENT_SIDE: &str = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin";

#[test]
fn c15_accepts_client_side_weights_with_the_defaults_of_a58() {
    let empty = client_side::ClientSideWeightedRoundRobin::default();
    let parsed = parse_list([lb(CLIENT_SIDE, &empty)]).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed).unwrap()["client_side_weighted_round_robin"],
        serde_json::json!({
            "enable_oob_load_report": false, "oob_reporting_period": "10s", "blackout_period": "10s",
            "weight_expiration_period": "180s", "weight_update_period": "1s", "error_utilization_penalty": 1.0,
            "metric_names_for_computing_utilization": [],
        })
    );
}

#[test]
fn c15_accepts_client_side_weights_and_updates_them_no_faster_than_every_100_ms() {
    let short = client_side::ClientSideWeightedRoundRobin {
        weight_update_period: Some(google::Duration { seconds: 0, nanos: 1 }),
        error_utilization_penalty: Some(google::FloatValue { value: 0.0 }),
        ..Default::default()
    };
    let LbPolicy::ClientSideWeightedRoundRobin(short) = parse_list([lb(CLIENT_SIDE, &short)]).unwrap() else {
        panic!("another policy")
    };
    assert_eq!(short.weight_update_period, Duration::from_millis(100));
    assert_eq!(short.error_utilization_penalty, 0.0);
}

#[test]
fn c15_rejects_penalties_and_durations_out_of_range() {
    for penalty in [-0.5, f32::NAN, f32::INFINITY] {
        let negative = client_side::ClientSideWeightedRoundRobin {
            error_utilization_penalty: Some(google::FloatValue { value: penalty }),
            ..Default::default()
        };
        let e = parse_list([lb(CLIENT_SIDE, &negative)]).unwrap_err();
        assert_eq!(e.path(), format!("{AT}.typed_config.error_utilization_penalty"));
        assert!(e.reason().starts_with("must be a number that is not negative"), "{e}");
    }
    type Set = fn(&mut client_side::ClientSideWeightedRoundRobin, Option<google::Duration>);
    let durations: [(&str, Set); 4] = [
        ("oob_reporting_period", |policy, span| policy.oob_reporting_period = span),
        ("blackout_period", |policy, span| policy.blackout_period = span),
        ("weight_expiration_period", |policy, span| policy.weight_expiration_period = span),
        ("weight_update_period", |policy, span| policy.weight_update_period = span),
    ];
    for (field, set) in durations {
        let mut negative = client_side::ClientSideWeightedRoundRobin::default();
        set(&mut negative, Some(google::Duration { seconds: -1, nanos: 0 }));
        let e = parse_list([lb(CLIENT_SIDE, &negative)]).unwrap_err();
        assert_eq!(e.path(), format!("{AT}.typed_config.{field}.seconds"));
    }
}

const WRR_LOCALITY: &str = "wrr_locality.v3.WrrLocality";

#[test]
fn c16_accepts_any_policy_inside_a_locality() {
    let inside =
        list([unknown(), lb("least_request.v3.LeastRequest", &least_request::LeastRequest::default())]);
    let parsed =
        parse_list([lb(WRR_LOCALITY, &wrr_locality::WrrLocality { endpoint_picking_policy: Some(inside) })]);
    let inside = LbPolicy::LeastRequest(LeastRequest { choice_count: 2 });
    assert_eq!(parsed, Ok(in_each_locality(inside)));
}

#[test]
fn c16_rejects_a_locality_without_a_policy_inside() {
    let e = parse_list([lb(WRR_LOCALITY, &wrr_locality::WrrLocality::default())]).unwrap_err();
    let at = format!("{AT}.typed_config.endpoint_picking_policy");
    assert_eq!(e.to_string(), format!("{at}: must be set"));
    let inside = list([unknown()]);
    let e =
        parse_list([lb(WRR_LOCALITY, &wrr_locality::WrrLocality { endpoint_picking_policy: Some(inside) })]);
    assert_eq!(e.unwrap_err().to_string(), format!("{at}.policies: none is supported: a.Unknown"));
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

/// The settings in a `TypedStruct` of the newer package and of the older one.
fn typed_structs(radius: Option<f64>) -> [google::Any; 2] {
    let kind = radius.map(google::value::Kind::NumberValue);
    let fields = [("radius".to_owned(), google::Value { kind })].into();
    let value = Some(google::Struct { fields });
    let type_url = "type.googleapis.com/my.Nearest".to_owned();
    let newer = xds::r#type::v3::TypedStruct { type_url: type_url.clone(), value: value.clone() };
    let older = udpa::r#type::v1::TypedStruct { type_url, value };
    [any("xds.type.v3.TypedStruct", &newer), any("udpa.type.v1.TypedStruct", &older)]
}

#[test]
fn c17_accepts_typed_structs_of_policies_that_the_application_knows() {
    let registry = Registry::new().with_lb_policy::<Nearest>();
    let cx = Context::new().with_registry(&registry);
    for typed in typed_structs(Some(3.0)) {
        let parsed = first_supported(&list([typed, round_robin()]), &cx, 0).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), r#"{"custom":{"my.Nearest":{"radius":3.0}}}"#);
        let LbPolicy::Custom(custom) = &parsed else { panic!("{parsed:?}") };
        assert_eq!((custom.type_name(), custom.get()), ("my.Nearest", Some(&Nearest { radius: 3.0 })));
    }
}

#[test]
fn c17_ignores_typed_structs_of_other_policies() {
    for typed in typed_structs(Some(3.0)) {
        let from = list([typed, round_robin()]);
        assert_eq!(first_supported(&from, &Context::new(), 0), Ok(LbPolicy::RoundRobin));
    }
}

#[test]
fn c17_rejects_typed_structs_that_cannot_be_parsed() {
    let registry = Registry::new().with_lb_policy::<Nearest>();
    let cx = Context::new().with_registry(&registry);
    let at = "policies[0].typed_extension_config.typed_config";
    for typed in typed_structs(None) {
        let e = first_supported(&list([typed.clone(), round_robin()]), &cx, 0).unwrap_err();
        assert_eq!(e.to_string(), format!("{at}.radius: must be a number"));
        let broken = google::Any { value: b"\xff"[..].into(), ..typed };
        let e = first_supported(&list([broken, round_robin()]), &cx, 0).unwrap_err();
        assert_eq!(e.path(), format!("{at}.value"));
    }
}
