//! Runtimes: layers of settings that can be changed while an application runs.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Context, Invalid, Resource, parts};
use crate::base::type_url;
use crate::pb::envoy::service::runtime::v3 as runtime;

/// A layer of settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Runtime {
    /// The name, not empty.
    pub name: Arc<str>,
    /// The settings as a JSON object, as the server sent it; a key may be a dotted path or lead to a nested object.
    pub layer: Map<String, Value>,
}

impl Resource for Runtime {
    const TYPE_URL: &'static str = type_url::RUNTIME;

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        let runtime::Runtime { name, layer } = Message::decode(bytes.clone())?;
        if name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        Ok(Self { name: name.into(), layer: parts::json_object(layer.unwrap_or_default()) })
    }
}

impl Runtime {
    /// Returns the value of a key, as it is or else as a path: `a.b` in `{"a": {"b": 1}}`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        find(&self.layer, key)
    }
}

/// The value of a key, whose parts may also be nested objects.
fn find<'a>(layer: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    if let Some(value) = layer.get(key) {
        return Some(value);
    }
    // Each dot may separate a nested object or be a part of a key, so that all are tried.
    key.match_indices('.').find_map(|(at, _)| find(layer.get(&key[..at])?.as_object()?, &key[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::google::protobuf::{self as google, value::Kind};

    fn value(kind: Kind) -> google::Value {
        google::Value { kind: Some(kind) }
    }

    fn parse(name: &str, layer: Option<google::Struct>) -> Result<Runtime, Invalid> {
        let message = runtime::Runtime { name: name.into(), layer };
        Runtime::parse(&message.encode_to_vec().into(), &Context::new())
    }

    #[test]
    fn a_layer_is_the_json_that_the_server_wrote() {
        let inner = google::Struct { fields: [("b.c".to_owned(), value(Kind::NumberValue(3.0)))].into() };
        let list =
            google::ListValue { values: vec![value(Kind::NullValue(0)), value(Kind::BoolValue(true))] };
        let fields = [
            ("a".to_owned(), value(Kind::StructValue(inner))),
            ("x.y".to_owned(), value(Kind::ListValue(list))),
        ];
        let parsed = parse("rt", Some(google::Struct { fields: fields.into() })).unwrap();
        assert_eq!(
            serde_json::to_string(&parsed).unwrap(),
            r#"{"name":"rt","layer":{"a":{"b.c":3},"x.y":[null,true]}}"#
        );
        assert_eq!(parsed.get("a.b.c"), Some(&3.into()));
        assert!(parsed.get("x.y").is_some());
        assert!(parsed.get("a.b").is_none() && parsed.get("").is_none() && parsed.get("a..b.c").is_none());
    }

    /// The bytes of a runtime with lists nested this many times.
    fn nested(times: usize) -> Bytes {
        let field = |number: u8, bytes: Vec<u8>| {
            let mut whole = vec![number << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut whole);
            whole.extend(bytes);
            whole
        };
        // Value.bool_value, and then ListValue.values in Value.list_value.
        let innermost = vec![0x20, 1];
        let value = (0..times).fold(innermost, |value, _| field(6, field(1, value)));
        let entry = [field(1, b"key".to_vec()), field(2, value)].concat();
        [field(1, b"rt".to_vec()), field(2, field(1, entry))].concat().into()
    }

    #[test]
    fn g7_accepts_messages_that_are_nested_as_deep_as_anybody_needs() {
        let parsed = Runtime::parse(&nested(40), &Context::new()).unwrap();
        let mut value = parsed.get("key");
        let mut depth = 0;
        while let Some(Value::Array(list)) = value {
            (value, depth) = (list.first(), depth + 1);
        }
        assert_eq!((depth, value), (40, Some(&Value::Bool(true))));
    }

    #[test]
    fn g7_rejects_messages_that_are_nested_without_end() {
        for times in [100, 5000] {
            let e = Runtime::parse(&nested(times), &Context::new()).unwrap_err();
            assert!(e.reason().starts_with("not a valid message") && e.reason().contains("recursion"), "{e}");
        }
    }

    #[test]
    fn g5_g6_accepts_a_message_with_a_name() {
        let parsed = parse("rt", None).unwrap();
        assert!(&*parsed.name == "rt" && parsed.layer.is_empty());
    }

    #[test]
    fn g5_rejects_bytes_that_are_no_message() {
        let e = Runtime::parse(&Bytes::from_static(b"\xff"), &Context::new()).unwrap_err();
        assert!(e.path().is_empty() && e.reason().starts_with("not a valid message"), "{e}");
    }

    #[test]
    fn g6_rejects_an_empty_name() {
        assert_eq!(parse("", None).unwrap_err().to_string(), "name: must not be empty");
    }
}
