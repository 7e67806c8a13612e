//! The messages in a JSON value, with their types and paths.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};

use super::{
    any,
    types::{Types, WellKnown},
};

/// A message in a resource.
#[derive(Debug, Clone, Copy)]
pub struct Visited<'a> {
    /// The path from the resource, such as `virtual_hosts[0].routes[1]`; empty for the resource itself.
    pub path: &'a str,
    /// The full name of the message, such as `envoy.config.route.v3.Route`.
    pub message: &'a str,
    /// Its fields, by the names of their definition.
    pub fields: &'a Map<String, Value>,
}

/// Visits all messages in the JSON form of an `Any` as [`super::show_any`] makes it, each before those in it. Messages of unknown types
/// and those with a special JSON form are left out.
pub(crate) fn visit(value: &Value, visit: &mut dyn FnMut(Visited<'_>)) {
    let types = Types::load();
    Visitor { types, path: String::new(), visit }.any(value);
}

/// The walk through a value. Values that this crate has made have a limited depth.
struct Visitor<'v> {
    /// The known messages.
    types: Types,
    /// The path of the current value.
    path: String,
    /// What is called with each message.
    visit: &'v mut dyn FnMut(Visited<'_>),
}

impl Visitor<'_> {
    /// Visits the message in an `Any`.
    fn any(&mut self, value: &Value) {
        let Some(type_url) = value.get(any::TYPE).and_then(Value::as_str) else { return };
        if let Some(message) = self.types.of_url(type_url) {
            self.message(&message, value);
        }
    }

    /// Visits a message, and those in it.
    fn message(&mut self, message: &MessageDescriptor, value: &Value) {
        let Value::Object(fields) = value else { return };
        match WellKnown::of(message) {
            Some(WellKnown::Any) => return self.any(value),
            Some(_) => return,
            None => {}
        }
        (self.visit)(Visited { path: &self.path, message: message.full_name(), fields });
        for (name, value) in fields {
            if let Some(field) = message.get_field_by_name(name) {
                let dot = if self.path.is_empty() { "" } else { "." };
                self.within(&format!("{dot}{name}"), |visitor| visitor.field(&field, value));
            }
        }
    }

    /// Visits the messages of a field.
    fn field(&mut self, field: &FieldDescriptor, value: &Value) {
        let Kind::Message(message) = field.kind() else { return };
        match value {
            Value::Array(values) if field.is_list() => {
                for (index, value) in values.iter().enumerate() {
                    self.within(&format!("[{index}]"), |visitor| visitor.message(&message, value));
                }
            }
            Value::Object(entries) if field.is_map() => {
                let Kind::Message(message) = message.map_entry_value_field().kind() else { return };
                for (key, value) in entries {
                    self.within(&format!("[{key:?}]"), |visitor| visitor.message(&message, value));
                }
            }
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_)) => self.message(&message, value),
        }
    }

    /// Visits something under a longer path.
    fn within(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_visited_with_their_paths_and_types() {
        let value = json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "routes",
            "virtual_hosts": [{
                "domains": ["*"],
                "typed_per_filter_config": {"a.b": {"@type": "type.googleapis.com/unknown.Filter", "x": {}}},
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "shop", "timeout": "1s"}}],
            }],
        });
        let mut found = Vec::new();
        visit(&value, &mut |visited| found.push(format!("{} {}", visited.path, visited.message)));
        let expected = [
            " envoy.config.route.v3.RouteConfiguration",
            "virtual_hosts[0] envoy.config.route.v3.VirtualHost",
            "virtual_hosts[0].routes[0] envoy.config.route.v3.Route",
            "virtual_hosts[0].routes[0].match envoy.config.route.v3.RouteMatch",
            "virtual_hosts[0].routes[0].route envoy.config.route.v3.RouteAction",
        ];
        assert_eq!(found, expected);
    }
}
