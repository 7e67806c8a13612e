//! Load balancing policies (A42, A48, A52, A58, A62).

#[cfg_attr(not(feature = "channel"), allow(dead_code, reason = "channels execute these policies"))]
mod endpoint_policy;
pub(super) mod maglev;
mod ring_hash;
mod service_config;

use std::{num::NonZeroU32, time::Duration};

use prost::Message;
use serde::Serialize;

#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
pub(crate) use self::endpoint_policy::{AddedMetadata, PickResources};
pub use self::endpoint_policy::{
    CustomPolicy, EndpointBalancer, EndpointPick, EndpointPicker, EndpointPolicy, EndpointState, PickRequest,
    PolicyEndpoint,
};
pub use self::maglev::Maglev;
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
pub(crate) use self::maglev::is_prime;
use self::ring_hash::{from_message, sizes};
use super::{Context, Custom, Extension, Invalid, Payload, parts, remarks, unexecuted::Table};
use crate::pb::{
    envoy::{
        config::cluster::v3::{self as cluster, cluster::LbConfig},
        extensions::load_balancing_policies::{
            client_side_weighted_round_robin::v3 as client_side, least_request::v3 as least_request,
            pick_first::v3 as pick_first, random_subsetting::v3 as random_subsetting,
            wrr_locality::v3 as wrr_locality,
        },
    },
    google::protobuf as google,
};

/// How a cluster's requests are spread over its localities and endpoints.
///
/// In JSON, the policy's name in snake case, as a key of its settings where it has any.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LbPolicy {
    /// One endpoint after the other.
    RoundRobin,
    /// The first address that can be connected to.
    PickFirst(PickFirst),
    /// An endpoint by a hash of the request.
    RingHash(Box<RingHash>),
    /// The endpoint with fewest requests under way among some at random.
    LeastRequest(LeastRequest),
    /// An endpoint by a hash of the request, from a table (Envoy's policy).
    Maglev(Maglev),
    /// An endpoint by weights that are computed from the load that endpoints report.
    ClientSideWeightedRoundRobin(Box<ClientSideWeightedRoundRobin>),
    /// First a locality by weight, then an endpoint in it.
    WrrLocality(WrrLocality),
    /// Some of the endpoints, others for each client.
    RandomSubsetting(RandomSubsetting),
    /// A policy of the application's own.
    Custom(CustomPolicy),
}

/// Settings of [`LbPolicy::PickFirst`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PickFirst {
    /// Whether the addresses are shuffled before.
    pub shuffle_address_list: bool,
}

/// Settings of [`LbPolicy::RingHash`]; the hash function is always XXH64.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RingHash {
    /// The smallest ring: 1 to 8,388,608 and at most the largest; 1024 by default.
    pub minimum_ring_size: u32,
    /// The largest ring: 1 to 8,388,608, the default.
    pub maximum_ring_size: u32,
    /// The header whose value is hashed instead of what the route's hash policies compute (A76), in lower case. Only the form as a
    /// `TypedStruct` has it, whose largest ring is 4096 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_hash_header: Option<Box<str>>,
}

/// Settings of [`LbPolicy::LeastRequest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeastRequest {
    /// Endpoints to compare: 2 to 10; 2 by default, and more than 10 are 10 (A48).
    pub choice_count: u8,
}

/// Settings of [`LbPolicy::ClientSideWeightedRoundRobin`] (A58).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClientSideWeightedRoundRobin {
    /// Whether endpoints report their load beside the requests too.
    pub enable_oob_load_report: bool,
    /// How often they do, 10 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub oob_reporting_period: Duration,
    /// How long an endpoint must have reported before its weight counts, 10 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub blackout_period: Duration,
    /// For how long a report counts, 180 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub weight_expiration_period: Duration,
    /// How often weights are computed: at least 0.1 s, 1 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub weight_update_period: Duration,
    /// How much errors lower a weight: not negative, 1 by default.
    pub error_utilization_penalty: f32,
    /// Metrics whose maximum is the utilization of endpoints that report no `application_utilization`: `cpu_utilization`,
    /// `mem_utilization`, or `named_metrics.` and a key (gRFC A114). Without a value of one, it is `cpu_utilization`.
    pub metric_names_for_computing_utilization: Box<[Box<str>]>,
}

/// Settings of [`LbPolicy::WrrLocality`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WrrLocality {
    /// The policy inside each locality.
    pub endpoint_picking_policy: Box<LbPolicy>,
}

/// Settings of [`LbPolicy::RandomSubsetting`] (A68).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RandomSubsetting {
    /// How many endpoints are used at most.
    pub subset_size: NonZeroU32,
    /// The policy among them.
    pub child_policy: Box<LbPolicy>,
}

/// The load balancing settings of a cluster.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// `load_balancing_policy`.
    pub(super) list: Option<cluster::LoadBalancingPolicy>,
    /// `lb_policy`.
    pub(super) legacy: i32,
    /// `lb_config`.
    pub(super) config: Option<LbConfig>,
    /// `common_lb_config`, where the policy has settings there.
    pub(super) common: Option<cluster::cluster::CommonLbConfig>,
    /// Whether the type of the cluster is none of xDS' own, such as an aggregate.
    pub(super) is_of_custom_type: bool,
}

impl LbPolicy {
    /// The names of the metrics that the utilization is computed from (A114).
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn utilization_metrics(&self) -> &[Box<str>] {
        match self {
            Self::ClientSideWeightedRoundRobin(it) => &it.metric_names_for_computing_utilization,
            Self::WrrLocality(it) => it.endpoint_picking_policy.utilization_metrics(),
            Self::RandomSubsetting(it) => it.child_policy.utilization_metrics(),
            Self::RoundRobin
            | Self::PickFirst(_)
            | Self::RingHash(_)
            | Self::LeastRequest(_)
            | Self::Maglev(_)
            | Self::Custom(_) => &[],
        }
    }

    /// Rules C6 to C18 and A52: `load_balancing_policy` where it is set, otherwise the older `lb_policy`.
    pub(super) fn parse(from: &Choice, cx: &Context<'_>) -> Result<Self, Invalid> {
        match &from.list {
            Some(policy) => first_supported(policy, cx, 0).map_err(|e| e.at("load_balancing_policy")),
            None => legacy(from),
        }
    }
}

/// The policy of a cluster that names one by a number.
fn legacy(from: &Choice) -> Result<LbPolicy, Invalid> {
    use cluster::cluster::{LbPolicy as Legacy, ring_hash_lb_config::HashFunction};
    match Legacy::try_from(from.legacy) {
        Ok(Legacy::RoundRobin) => Ok(in_each_locality(LbPolicy::RoundRobin)),
        // What an aggregate cluster must have for proxies; it has no policy of its own here (A75-1).
        Ok(Legacy::ClusterProvided) if from.is_of_custom_type => Ok(in_each_locality(LbPolicy::RoundRobin)),
        // Not in each locality: one ring has the endpoints of all of them (A42).
        Ok(Legacy::RingHash) => {
            let Some(LbConfig::RingHashLbConfig(config)) = &from.config else {
                return sizes(None, None);
            };
            if config.hash_function != HashFunction::XxHash as i32 {
                return Err(
                    Invalid::field("hash_function", "only XX_HASH is supported").at("ring_hash_lb_config")
                );
            }
            sizes(config.minimum_ring_size, config.maximum_ring_size).map_err(|e| e.at("ring_hash_lb_config"))
        }
        // C8: the settings of another policy are ignored.
        Ok(Legacy::LeastRequest) => {
            let choice_count = match &from.config {
                Some(LbConfig::LeastRequestLbConfig(config)) => config.choice_count,
                Some(LbConfig::RingHashLbConfig(_) | LbConfig::MaglevLbConfig(_)) | None => None,
            };
            let policy = choices(choice_count).map_err(|e| e.at("least_request_lb_config"))?;
            Ok(in_each_locality(policy))
        }
        // Not in each locality either: one table has the endpoints of all of them, as in Envoy.
        Ok(Legacy::Maglev) => {
            let table_size = match &from.config {
                Some(LbConfig::MaglevLbConfig(config)) => config.table_size.map(|size| size.value),
                Some(LbConfig::RingHashLbConfig(_) | LbConfig::LeastRequestLbConfig(_)) | None => None,
            };
            let is_weighted =
                from.common.as_ref().is_some_and(|common| common.locality_config_specifier.is_some());
            let maglev = Maglev::new(table_size, is_weighted).map_err(|e| e.at("maglev_lb_config"))?;
            Ok(LbPolicy::Maglev(maglev))
        }
        Ok(other @ (Legacy::Random | Legacy::ClusterProvided | Legacy::LoadBalancingPolicyConfig)) => {
            let reason = format!("{} is not supported without a load_balancing_policy", other.as_str_name());
            Err(Invalid::field("lb_policy", reason))
        }
        Err(_) => Err(Invalid::field("lb_policy", format!("{} is no known policy", from.legacy))),
    }
}

/// A policy for the endpoints of each locality.
fn in_each_locality(policy: LbPolicy) -> LbPolicy {
    LbPolicy::WrrLocality(WrrLocality { endpoint_picking_policy: Box::new(policy) })
}

/// The first policy of a list that is known.
fn first_supported(
    list: &cluster::LoadBalancingPolicy,
    cx: &Context<'_>,
    depth: u32,
) -> Result<LbPolicy, Invalid> {
    // C11: the policies of a list may have lists of their own, and this bounds the recursion.
    if depth >= MAX_DEPTH {
        return Err(Invalid::new(format!("policies are nested deeper than {MAX_DEPTH}")));
    }
    let mut skipped = Vec::new();
    for (i, entry) in list.policies.iter().enumerate() {
        let at = |e: Invalid| e.at("typed_extension_config").at_index("policies", i);
        let config = entry.typed_extension_config.as_ref().ok_or(Invalid::new("must be set")).map_err(at)?;
        let any = config.typed_config.as_ref().ok_or_else(|| Invalid::field("typed_config", "must be set"));
        // A52-2: an invalid policy of a known type rejects the cluster, even if a later one is usable.
        match policy(any.map_err(at)?, cx, depth).map_err(|e| at(e.at("typed_config")))? {
            Ok(policy) => return Ok(policy),
            Err(Unsupported(name)) => skipped.push(name),
        }
    }
    let skipped = if skipped.is_empty() { "it is empty".to_owned() } else { skipped.join(", ") };
    Err(Invalid::field("policies", format!("none is supported: {skipped}")))
}

/// The name of a policy that this client does not know.
struct Unsupported(String);

/// Parses a policy; the inner error is that it is not known.
fn policy(any: &google::Any, cx: &Context<'_>, depth: u32) -> Result<Result<LbPolicy, Unsupported>, Invalid> {
    let (name, payload) = parts::extension(any)?;
    let built_in = || BUILT_IN.iter().find(|(type_name, _)| *type_name == name).map(|(_, parse)| parse);
    // A clone of the reference alone: the parser consumes the payload, and the scan reads the bytes once more.
    let message = match &payload {
        Payload::Message(bytes) => Some(bytes.clone()),
        Payload::Struct(_) => None,
    };
    let in_service_config = || service_config::parser(&name);
    // Those of the application come first: they replace built-in ones of the same name.
    let parsed = match cx.registry.lb_policies().get(&name).or_else(built_in).or_else(in_service_config) {
        Some(parse) => parse(payload, cx, depth)?,
        None => None,
    };
    if parsed.is_some()
        && let Some((message, table)) = message.zip(Table::of_policy(&name))
    {
        remarks::scan(table, &message);
    }
    Ok(parsed.ok_or_else(|| Unsupported(name.into_owned())))
}

/// The parser of a type of policy, at a depth of nested policies. `None` if the type has no such form.
pub(super) type ParsePolicy = fn(Payload, &Context<'_>, u32) -> Result<Option<LbPolicy>, Invalid>;

/// A policy of the application.
pub(super) fn parse_custom<T: Extension>(
    payload: Payload,
    cx: &Context<'_>,
    _: u32,
) -> Result<Option<LbPolicy>, Invalid> {
    Custom::parse::<T>(payload, cx).map(|custom| Some(LbPolicy::Custom(CustomPolicy::parsed(custom))))
}

/// A policy of the application that channels execute.
pub(super) fn parse_executed<T: EndpointPolicy>(
    payload: Payload,
    cx: &Context<'_>,
    _: u32,
) -> Result<Option<LbPolicy>, Invalid> {
    Custom::parse::<T>(payload, cx).map(|custom| Some(LbPolicy::Custom(CustomPolicy::executed::<T>(custom))))
}

/// A built-in policy, whose message has no JSON form.
fn message<M: Message + Default>(
    payload: Payload,
    parse: impl FnOnce(M) -> Result<LbPolicy, Invalid>,
) -> Result<Option<LbPolicy>, Invalid> {
    let Payload::Message(bytes) = payload else { return Ok(None) };
    parse(M::decode(bytes).map_err(|e| Invalid::from(e).at("value"))?).map(Some)
}

/// The built-in policies. An application's policy of the same type replaces one.
const BUILT_IN: &[(&str, ParsePolicy)] = &[
    ("envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin", |payload, _, _| {
        Ok(matches!(payload, Payload::Message(_)).then_some(LbPolicy::RoundRobin))
    }),
    ("envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst", |payload, _, _| {
        message(payload, |pick_first::PickFirst { shuffle_address_list }| {
            Ok(LbPolicy::PickFirst(PickFirst { shuffle_address_list }))
        })
    }),
    ("envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", |payload, _, _| {
        message(payload, from_message)
    }),
    ("envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest", |payload, _, _| {
        message(payload, |it: least_request::LeastRequest| choices(it.choice_count))
    }),
    (Maglev::TYPE_NAME, |payload, cx, _| match payload {
        Payload::Message(_) => Maglev::parse(payload, cx).map(|maglev| Some(LbPolicy::Maglev(maglev))),
        Payload::Struct(_) => Ok(None),
    }),
    (
        "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        |payload, _, _| message(payload, client_side_weights),
    ),
    ("envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality", |payload, cx, depth| {
        message(payload, |policy| wrr_locality(policy, cx, depth))
    }),
    (
        "envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting",
        |payload, cx, depth| message(payload, |policy| random_subsetting(policy, cx, depth)),
    ),
];

/// Parses the choice of a locality, with the policy for its endpoints.
fn wrr_locality(from: wrr_locality::WrrLocality, cx: &Context<'_>, depth: u32) -> Result<LbPolicy, Invalid> {
    let policy = child(from.endpoint_picking_policy.as_ref(), cx, depth);
    Ok(in_each_locality(policy.map_err(|e| e.at("endpoint_picking_policy"))?))
}

/// The settings that A68 requires (CH3.61).
fn random_subsetting(
    from: random_subsetting::RandomSubsetting,
    cx: &Context<'_>,
    depth: u32,
) -> Result<LbPolicy, Invalid> {
    let subset_size = subset_size(from.subset_size.map_or(0, |size| size.value), "subset_size")?;
    let policy = child(from.child_policy.as_ref(), cx, depth).map_err(|e| e.at("child_policy"))?;
    Ok(LbPolicy::RandomSubsetting(RandomSubsetting { subset_size, child_policy: Box::new(policy) }))
}

/// Parses the size of a subset.
fn subset_size(size: u32, field: &str) -> Result<NonZeroU32, Invalid> {
    NonZeroU32::new(size).ok_or_else(|| Invalid::field(field, "must be set and greater than 0"))
}

/// The policy inside another one, which must have one.
fn child(
    list: Option<&cluster::LoadBalancingPolicy>,
    cx: &Context<'_>,
    depth: u32,
) -> Result<LbPolicy, Invalid> {
    let list = list.ok_or_else(|| Invalid::new("must be set"))?;
    first_supported(list, cx, depth + 1)
}

/// Rules C8 and C14.
fn choices(choice_count: Option<google::UInt32Value>) -> Result<LbPolicy, Invalid> {
    let choice_count = choice_count.map_or(2, |count| count.value);
    if choice_count < 2 {
        return Err(Invalid::field("choice_count", format!("must be at least 2, is {choice_count}")));
    }
    let choice_count = u8::try_from(choice_count).map_or(MAX_CHOICES, |count| count.min(MAX_CHOICES));
    Ok(LbPolicy::LeastRequest(LeastRequest { choice_count }))
}

/// Rule C15.
fn client_side_weights(from: client_side::ClientSideWeightedRoundRobin) -> Result<LbPolicy, Invalid> {
    let duration = |from: Option<google::Duration>, field: &str, default: Duration| {
        from.map_or(Ok(default), |from| parts::duration(&from).map_err(|e| e.at(field)))
    };
    let penalty = from.error_utilization_penalty.map_or(1.0, |penalty| penalty.value);
    // In this form, so that NaN is rejected, too.
    if !(penalty >= 0.0 && penalty.is_finite()) {
        let reason = format!("must be a number that is not negative, is {penalty}");
        return Err(Invalid::field("error_utilization_penalty", reason));
    }
    let second = Duration::from_secs(1);
    let update = duration(from.weight_update_period, "weight_update_period", second)?;
    Ok(LbPolicy::ClientSideWeightedRoundRobin(Box::new(ClientSideWeightedRoundRobin {
        enable_oob_load_report: from.enable_oob_load_report.is_some_and(|enable| enable.value),
        oob_reporting_period: duration(from.oob_reporting_period, "oob_reporting_period", 10 * second)?,
        blackout_period: duration(from.blackout_period, "blackout_period", 10 * second)?,
        weight_expiration_period: duration(
            from.weight_expiration_period,
            "weight_expiration_period",
            180 * second,
        )?,
        // A58: shorter periods are raised rather than rejected.
        weight_update_period: update.max(MIN_WEIGHT_UPDATE_PERIOD),
        error_utilization_penalty: penalty,
        metric_names_for_computing_utilization: from
            .metric_names_for_computing_utilization
            .into_iter()
            .map(Into::into)
            .collect(),
    })))
}

/// The limit of policies inside each other.
const MAX_DEPTH: u32 = 16;
/// The greatest number of endpoints to choose from.
const MAX_CHOICES: u8 = 10;
/// The least time between two updates of weights.
const MIN_WEIGHT_UPDATE_PERIOD: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
