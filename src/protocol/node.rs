use bytes::Bytes;
use prost::Message;
use serde_json::Value;

use crate::{
    config::{CLIENT_FEATURES, Node, USER_AGENT_NAME, USER_AGENT_VERSION},
    pb::{
        envoy::config::core::v3 as core,
        google::protobuf::{self, value::Kind},
    },
};

/// The node in its wire format, encoded once for all streams.
pub(crate) fn encode(node: &Node) -> Bytes {
    let locality = node.locality.as_ref().map(|l| core::Locality {
        region: l.region().to_owned(),
        zone: l.zone().to_owned(),
        sub_zone: l.sub_zone().to_owned(),
    });
    let message = core::Node {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        locality,
        metadata: (!node.metadata.is_empty()).then(|| structure(&node.metadata)),
        user_agent_name: USER_AGENT_NAME.into(),
        user_agent_version_type: Some(core::node::UserAgentVersionType::UserAgentVersion(
            USER_AGENT_VERSION.into(),
        )),
        client_features: CLIENT_FEATURES.iter().map(|&feature| feature.into()).collect(),
        ..core::Node::default()
    };
    message.encode_to_vec().into()
}

/// A JSON object as a `Struct`: metadata of the node has no type of its own in the protocol.
fn structure(map: &serde_json::Map<String, Value>) -> protobuf::Struct {
    protobuf::Struct { fields: map.iter().map(|(key, json)| (key.clone(), value(json))).collect() }
}

/// A JSON value as one of a `Struct`.
fn value(json: &Value) -> protobuf::Value {
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(bool) => Kind::BoolValue(*bool),
        // A `Struct` has no integers.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => {
            Kind::ListValue(protobuf::ListValue { values: values.iter().map(value).collect() })
        }
        Value::Object(map) => Kind::StructValue(structure(map)),
    };
    protobuf::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Locality;

    #[test]
    fn a27_2_a95_3_user_agent_and_features_are_the_librarys() {
        let node = Node::new("n").with_cluster("c").with_locality(Locality::new("r", "z", ""));
        let node = node.with_metadata("k", serde_json::json!({"a": [1, true, null, "x"]}));
        let message = core::Node::decode(encode(&node)).unwrap();
        assert_eq!((&*message.id, &*message.cluster, &*message.user_agent_name), ("n", "c", "xdskit"));
        assert_eq!(message.locality.unwrap().zone, "z");
        assert_eq!(message.client_features.len(), 5);
        let fields = message.metadata.unwrap().fields;
        let Some(Kind::StructValue(inner)) = &fields["k"].kind else { panic!("not a struct: {fields:?}") };
        let Some(Kind::ListValue(list)) = &inner.fields["a"].kind else { panic!("not a list") };
        assert_eq!(list.values[0].kind, Some(Kind::NumberValue(1.0)));
        assert_eq!(list.values.len(), 4);
    }
}
