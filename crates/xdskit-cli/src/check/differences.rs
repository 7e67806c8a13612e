//! What gRPC's clients do with parts of resources that this crate's channels execute. The table has what is certain alone.

use serde_json::Value;
use xdskit::tool_support::Visited;

use super::finding::Rule;

/// A part of a resource that gRPC's clients handle differently.
#[derive(Debug)]
struct Difference {
    /// The end of the full name of the message.
    message: &'static str,
    /// What the message has.
    part: Part,
    /// What gRPC's clients do.
    effect: Effect,
}

/// What a message has.
#[derive(Debug)]
enum Part {
    /// A field.
    Field(&'static str),
    /// A field with a value, by its name.
    Value(&'static str, &'static str),
    /// An HTTP filter of a type.
    Filter(&'static str),
}

/// What gRPC's clients do.
#[derive(Debug, Clone, Copy)]
enum Effect {
    /// The clients reject the resource; what is optional, they leave out.
    Rejects(&'static str),
    /// The clients ignore the part.
    Ignores(&'static str),
}

/// What gRPC's clients do with a message: the rule, the field, and the reason.
pub(crate) fn of(visited: &Visited<'_>) -> Vec<(Rule, &'static str, String)> {
    let is_optional = visited.fields.get("is_optional") == Some(&Value::Bool(true));
    let found = DIFFERENCES.iter().filter_map(|Difference { message, part, effect }| {
        let rest = visited.message.strip_suffix(message)?;
        let field = part.found_in(visited).filter(|_| rest.is_empty() || rest.ends_with('.'))?;
        Some(match effect {
            Effect::Rejects(why) if is_optional => {
                (Rule::LeftOut, field, format!("gRPC's clients leave out the optional filter: {why}"))
            }
            Effect::Rejects(why) => {
                (Rule::Rejected, field, format!("gRPC's clients reject the resource: {why}"))
            }
            Effect::Ignores(why) => (Rule::NotExecuted, field, format!("gRPC's clients ignore it: {why}")),
        })
    });
    found.collect()
}

impl Part {
    /// The field, if the message has the part.
    fn found_in(&self, visited: &Visited<'_>) -> Option<&'static str> {
        let text = |field: &str| visited.fields.get(field).and_then(Value::as_str);
        match self {
            Self::Field(field) => visited.fields.contains_key(*field).then_some(*field),
            Self::Value(field, value) => (text(field) == Some(value)).then_some(*field),
            Self::Filter(type_name) => {
                let type_url = visited.fields.get("typed_config")?.get("@type")?.as_str()?;
                (type_url.rsplit_once('/')?.1 == *type_name).then_some("typed_config")
            }
        }
    }
}

/// The differences, with the sections of docs/spec/VALIDATION.md and docs/channel that describe what this crate does.
const DIFFERENCES: [Difference; 7] = [
    // R12.
    Difference {
        message: "route.v3.RouteMatch",
        part: Part::Field("path_separated_prefix"),
        effect: Effect::Rejects("the route has no path specifier that they support"),
    },
    Difference {
        message: "route.v3.RouteMatch",
        part: Part::Field("path_match_policy"),
        effect: Effect::Rejects("the route has no path specifier that they support"),
    },
    // docs/channel/hashing.md.
    Difference {
        message: "cluster.v3.Cluster",
        part: Part::Value("lb_policy", "MAGLEV"),
        effect: Effect::Rejects("the policy is not supported"),
    },
    // SC1 to SC5.
    Difference {
        message: "http_connection_manager.v3.HttpConnectionManager",
        part: Part::Field("scoped_routes"),
        effect: Effect::Rejects("routes must be in `rds` or `route_config`"),
    },
    // H14.
    Difference {
        message: "http_connection_manager.v3.HttpFilter",
        part: Part::Filter("envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"),
        effect: Effect::Rejects("the type of the filter is not supported"),
    },
    // L23.
    Difference {
        message: "http_connection_manager.v3.HttpFilter",
        part: Part::Field("config_discovery"),
        effect: Effect::Rejects("the configuration of a filter must be in the listener"),
    },
    Difference {
        message: "route.v3.RouteConfiguration",
        part: Part::Field("vhds"),
        effect: Effect::Ignores("virtual hosts on demand are not supported"),
    },
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rules of what gRPC's clients do with a message.
    fn rules(message: &str, fields: &Value) -> Vec<Rule> {
        let fields = fields.as_object().expect("an object");
        of(&Visited { path: "", message, fields }).into_iter().map(|(rule, ..)| rule).collect()
    }

    #[test]
    fn what_differs_is_found_where_it_is() {
        let filter = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";
        let mutation = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
        for (message, fields, expected) in [
            ("envoy.config.route.v3.RouteMatch", json!({"prefix": "/"}), None),
            (
                "envoy.config.route.v3.RouteMatch",
                json!({"path_separated_prefix": "/a"}),
                Some(Rule::Rejected),
            ),
            ("envoy.config.cluster.v3.Cluster", json!({"lb_policy": "RING_HASH"}), None),
            ("envoy.config.cluster.v3.Cluster", json!({"lb_policy": "MAGLEV"}), Some(Rule::Rejected)),
            ("envoy.config.route.v3.RouteConfiguration", json!({"vhds": {}}), Some(Rule::NotExecuted)),
            (filter, json!({"typed_config": {"@type": mutation}}), Some(Rule::Rejected)),
            (filter, json!({"typed_config": {"@type": mutation}, "is_optional": true}), Some(Rule::LeftOut)),
        ] {
            assert_eq!(rules(message, &fields), Vec::from_iter(expected), "{fields}");
        }
    }
}
