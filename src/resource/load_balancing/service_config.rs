//! Policies by their names in gRPC's service config, in a `TypedStruct` with the JSON of that (A52-3).

use serde_json::{Map, Value};

use super::{
    Context, Invalid, LbPolicy, MAX_DEPTH, ParsePolicy, Payload, PickFirst, RandomSubsetting, choices,
    client_side_weights, in_each_locality, parts, ring_hash, subset_size,
};
use crate::pb::{
    envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3 as client_side,
    google::protobuf as google,
};

/// The parser of a policy by its name.
pub(super) fn parser(name: &str) -> Option<&'static ParsePolicy> {
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, parse)| parse)
}

/// Some names have kept `_experimental` from the time before their gRFCs were final: it is a part of the name.
const POLICIES: &[(&str, ParsePolicy)] = &[
    ("round_robin", |payload, _, _| fields(payload, |_| Ok(LbPolicy::RoundRobin))),
    ("pick_first", |payload, _, _| {
        fields(payload, |fields| {
            let shuffle_address_list = fields.truth("shuffleAddressList")?;
            Ok(LbPolicy::PickFirst(PickFirst { shuffle_address_list }))
        })
    }),
    ("ring_hash_experimental", |payload, _, _| fields(payload, |fields| ring_hash::from_json(fields.0))),
    ("least_request_experimental", |payload, _, _| {
        fields(payload, |fields| {
            let choice_count = fields.number("choiceCount")?.map(|value| google::UInt32Value { value });
            choices(choice_count).map_err(|e| Invalid::field("choiceCount", e.reason().to_owned()))
        })
    }),
    ("weighted_round_robin", |payload, _, _| fields(payload, weighted_round_robin)),
    ("xds_wrr_locality_experimental", |payload, cx, depth| {
        fields(payload, |fields| Ok(in_each_locality(fields.child_policy(cx, depth)?)))
    }),
    ("random_subsetting_experimental", |payload, cx, depth| {
        fields(payload, |fields| {
            let subset_size = subset_size(fields.number("subsetSize")?.unwrap_or(0), "subsetSize")?;
            let child_policy = Box::new(fields.child_policy(cx, depth)?);
            Ok(LbPolicy::RandomSubsetting(RandomSubsetting { subset_size, child_policy }))
        })
    }),
];

/// Parses the fields of a policy. `None` for a message, which is never of such a type.
fn fields(
    payload: Payload,
    parse: impl FnOnce(&Fields<'_>) -> Result<LbPolicy, Invalid>,
) -> Result<Option<LbPolicy>, Invalid> {
    let Payload::Struct(fields) = payload else { return Ok(None) };
    parse(&Fields(&fields)).map(Some)
}

/// Converts the settings to the message of xDS, whose checks apply to both forms.
fn weighted_round_robin(fields: &Fields<'_>) -> Result<LbPolicy, Invalid> {
    let names = match fields.get("metricNamesForComputingUtilization") {
        None => Vec::new(),
        Some(names) => {
            let texts = names.as_array().and_then(|names| {
                names.iter().map(|name| name.as_str().map(ToOwned::to_owned)).collect::<Option<Vec<_>>>()
            });
            texts.ok_or_else(|| {
                Invalid::field("metricNamesForComputingUtilization", "must be a list of texts")
            })?
        }
    };
    let penalty = match fields.get("errorUtilizationPenalty") {
        None => None,
        #[expect(clippy::cast_possible_truncation, reason = "the field is a float")]
        Some(value) => match value.as_f64().map(|value| value as f32) {
            Some(value) if value >= 0.0 && value.is_finite() => Some(google::FloatValue { value }),
            _ => {
                let reason = format!("must be a number that is not negative, is {value}");
                return Err(Invalid::field("errorUtilizationPenalty", reason));
            }
        },
    };
    client_side_weights(client_side::ClientSideWeightedRoundRobin {
        enable_oob_load_report: Some(google::BoolValue { value: fields.truth("enableOobLoadReport")? }),
        oob_reporting_period: fields.duration("oobReportingPeriod")?,
        blackout_period: fields.duration("blackoutPeriod")?,
        weight_expiration_period: fields.duration("weightExpirationPeriod")?,
        weight_update_period: fields.duration("weightUpdatePeriod")?,
        error_utilization_penalty: penalty,
        metric_names_for_computing_utilization: names,
    })
}

/// The settings of a policy; unknown ones are ignored, and `null` is the default.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    /// A field that is present and not `null`.
    fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// A boolean; `false` if it is absent.
    fn truth(&self, field: &str) -> Result<bool, Invalid> {
        self.get(field).map_or(Ok(false), |value| {
            value.as_bool().ok_or_else(|| Invalid::field(field, format!("must be true or false, is {value}")))
        })
    }

    /// A number, which may be a text.
    fn number(&self, field: &str) -> Result<Option<u32>, Invalid> {
        let Some(value) = self.get(field) else { return Ok(None) };
        // In protobuf's JSON, numbers may be texts.
        let text = value.as_str().and_then(|text| text.parse().ok());
        // A number of a `Struct` is a float.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole and in range"
        )]
        let float = value
            .as_f64()
            .filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number))
            .map(|number| number as u32);
        let number = float.or(text);
        number.map(Some).ok_or_else(|| {
            Invalid::field(field, format!("must be a whole number up to {}, is {value}", u32::MAX))
        })
    }

    /// A duration, such as `1.5s`.
    fn duration(&self, field: &str) -> Result<Option<google::Duration>, Invalid> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let parsed = value.as_str().and_then(parts::json_duration);
        let duration = parsed.ok_or_else(|| {
            Invalid::field(field, format!("must be a duration, such as \"1.5s\", is {value}"))
        })?;
        let seconds = i64::try_from(duration.as_secs()).map_err(|_| Invalid::field(field, "is too long"))?;
        Ok(Some(google::Duration { seconds, nanos: duration.subsec_nanos().cast_signed() }))
    }

    /// The first policy in the list that is supported, as of the list in a cluster.
    fn child_policy(&self, cx: &Context<'_>, depth: u32) -> Result<LbPolicy, Invalid> {
        let list = self.get(CHILD_POLICY).and_then(Value::as_array);
        let list = list.ok_or_else(|| Invalid::field(CHILD_POLICY, "must be a list of policies"))?;
        let depth = depth + 1;
        if depth >= MAX_DEPTH {
            return Err(Invalid::field(CHILD_POLICY, format!("policies are nested deeper than {MAX_DEPTH}")));
        }
        let mut skipped = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            let at = |e: Invalid| e.at_index(CHILD_POLICY, index);
            let mut entries = entry.as_object().into_iter().flatten();
            let (Some((name, config)), None) = (entries.next(), entries.next()) else {
                return Err(at(Invalid::new("must be an object with the name of one policy")));
            };
            let fields = config.as_object().ok_or_else(|| at(Invalid::field(name, "must be an object")))?;
            // As in the list of a cluster, policies of the application replace built-in ones of the same name.
            let parse = cx.registry.lb_policies().get(name.as_str()).or_else(|| parser(name));
            let parsed = parse.map_or(Ok(None), |parse| parse(Payload::Struct(fields.clone()), cx, depth));
            match parsed.map_err(|e| at(e.at(name)))? {
                Some(policy) => return Ok(policy),
                None => skipped.push(name.as_str()),
            }
        }
        let skipped = if skipped.is_empty() { "it is empty".to_owned() } else { skipped.join(", ") };
        Err(Invalid::field(CHILD_POLICY, format!("none is supported: {skipped}")))
    }
}

/// The field with the policies below a policy.
const CHILD_POLICY: &str = "childPolicy";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::resource::load_balancing::{ClientSideWeightedRoundRobin, LeastRequest};

    fn parse(name: &str, settings: Value) -> Result<LbPolicy, String> {
        let Value::Object(fields) = settings else { panic!("{settings}") };
        let parse = parser(name).unwrap_or_else(|| panic!("{name} is not known"));
        parse(Payload::Struct(fields), &Context::new(), 0)
            .map(|policy| policy.expect("a struct is the form of all of them"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a52_3_the_names_of_the_service_config_are_accepted_with_their_settings() {
        let least = |choice_count| LbPolicy::LeastRequest(LeastRequest { choice_count });
        let first = |shuffle_address_list| LbPolicy::PickFirst(PickFirst { shuffle_address_list });
        for (name, settings, expected) in [
            ("round_robin", json!({}), LbPolicy::RoundRobin),
            ("round_robin", json!({"other": 1}), LbPolicy::RoundRobin),
            ("pick_first", json!({}), first(false)),
            ("pick_first", json!({"shuffleAddressList": true}), first(true)),
            ("least_request_experimental", json!({"choiceCount": null}), least(2)),
            ("least_request_experimental", json!({"choiceCount": 5.0}), least(5)),
            ("least_request_experimental", json!({"choiceCount": "11"}), least(10)),
            (
                "xds_wrr_locality_experimental",
                json!({"childPolicy": [{"other": {}}, {"pick_first": {}}, {"round_robin": {}}]}),
                in_each_locality(first(false)),
            ),
            (
                "random_subsetting_experimental",
                json!({"subsetSize": 7, "childPolicy": [{"round_robin": {}}]}),
                LbPolicy::RandomSubsetting(RandomSubsetting {
                    subset_size: 7.try_into().unwrap(),
                    child_policy: Box::new(LbPolicy::RoundRobin),
                }),
            ),
            (
                "weighted_round_robin",
                json!({
                    "enableOobLoadReport": true, "oobReportingPeriod": "0.5s", "blackoutPeriod": "1s",
                    "weightExpirationPeriod": "2s", "weightUpdatePeriod": "0.01s", "errorUtilizationPenalty": 0.5,
                    "metricNamesForComputingUtilization": ["a"],
                }),
                LbPolicy::ClientSideWeightedRoundRobin(Box::new(ClientSideWeightedRoundRobin {
                    enable_oob_load_report: true,
                    oob_reporting_period: Duration::from_millis(500),
                    blackout_period: Duration::from_secs(1),
                    weight_expiration_period: Duration::from_secs(2),
                    weight_update_period: Duration::from_millis(100),
                    error_utilization_penalty: 0.5,
                    metric_names_for_computing_utilization: ["a".into()].into(),
                })),
            ),
        ] {
            assert_eq!(parse(name, settings.clone()), Ok(expected), "{name} {settings}");
        }
        let ring = parse("ring_hash_experimental", json!({"maxRingSize": 2048}));
        assert!(matches!(ring, Ok(LbPolicy::RingHash(ring)) if ring.maximum_ring_size == 2048));
    }

    #[test]
    fn a52_3_settings_that_are_wrong_are_rejected_with_their_place() {
        for (name, settings, error) in [
            (
                "pick_first",
                json!({"shuffleAddressList": 1}),
                "shuffleAddressList: must be true or false, is 1",
            ),
            (
                "least_request_experimental",
                json!({"choiceCount": 1}),
                "choiceCount: must be at least 2, is 1",
            ),
            (
                "least_request_experimental",
                json!({"choiceCount": 2.5}),
                "choiceCount: must be a whole number up to 4294967295, is 2.5",
            ),
            (
                "weighted_round_robin",
                json!({"blackoutPeriod": 1}),
                "blackoutPeriod: must be a duration, such as \"1.5s\", is 1",
            ),
            (
                "weighted_round_robin",
                json!({"errorUtilizationPenalty": -1}),
                "errorUtilizationPenalty: must be a number that is not negative, is -1",
            ),
            (
                "weighted_round_robin",
                json!({"metricNamesForComputingUtilization": [1]}),
                "metricNamesForComputingUtilization: must be a list of texts",
            ),
            ("xds_wrr_locality_experimental", json!({}), "childPolicy: must be a list of policies"),
            (
                "xds_wrr_locality_experimental",
                json!({"childPolicy": [{"a": {}}, {"b": {}}]}),
                "childPolicy: none is supported: a, b",
            ),
            (
                "xds_wrr_locality_experimental",
                json!({"childPolicy": [{"a": {}, "b": {}}]}),
                "childPolicy[0]: must be an object with the name of one policy",
            ),
            (
                "xds_wrr_locality_experimental",
                json!({"childPolicy": [{"pick_first": {"shuffleAddressList": 1}}]}),
                "childPolicy[0].pick_first.shuffleAddressList: must be true or false, is 1",
            ),
            (
                "random_subsetting_experimental",
                json!({"childPolicy": [{"round_robin": {}}]}),
                "subsetSize: must be set and greater than 0",
            ),
        ] {
            assert_eq!(parse(name, settings.clone()), Err(error.to_owned()), "{name} {settings}");
        }
    }

    #[test]
    fn a52_3_policies_are_nested_16_deep_at_most() {
        let nested = |layers: usize| {
            let inner = json!({"childPolicy": [{"round_robin": {}}]});
            (2..layers)
                .fold(inner, |inner, _| json!({"childPolicy": [{"xds_wrr_locality_experimental": inner}]}))
        };
        assert!(parse("xds_wrr_locality_experimental", nested(16)).is_ok());
        let error = parse("xds_wrr_locality_experimental", nested(17)).unwrap_err();
        assert!(error.ends_with("childPolicy: policies are nested deeper than 16"), "{error}");
    }
}
