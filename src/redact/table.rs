//! The fields with credentials, as in `fields.txt`, which `.ci/sensitive_fields.py` writes.

use std::{collections::BTreeMap, sync::LazyLock};

/// The fields of a message that are confidential, or lead to such fields.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<Field>);

#[derive(Debug)]
pub(super) struct Field {
    /// The number in the message.
    number: u32,
    /// The name in protobuf.
    name: &'static str,
    /// Whether it is a map, of which the values are redacted.
    pub(super) is_map: bool,
    /// What is redacted in it.
    pub(super) kind: Kind,
}

/// The content of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Confidential text or bytes.
    Text,
    /// A `DataSource` whose inline data is confidential.
    Source,
    /// An `Any` whose content is confidential.
    Any,
    /// A `Struct` whose content is confidential.
    Struct,
    /// A message that leads to confidential fields.
    Message(&'static str),
}

impl Message {
    /// The message of this full name, if it leads to confidential fields.
    pub(super) fn of_name(name: &str) -> Option<&'static Self> {
        MESSAGES.get(name)
    }

    /// The message of a type URL.
    pub(super) fn of_url(type_url: &str) -> Option<&'static Self> {
        Self::of_name(type_url.rsplit_once('/')?.1)
    }

    /// The field of a number, if something is redacted in it.
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.0.iter().find(|field| field.number == number)
    }

    /// A field by its name in the definition or in JSON.
    pub(super) fn field_of_name(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|field| {
            let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
            field.name == name || plain(field.name) == plain(name)
        })
    }
}

/// Reads the table: names of messages, each followed by indented fields.
fn read(text: &'static str) -> BTreeMap<&'static str, Message> {
    let mut messages: BTreeMap<&'static str, Message> = BTreeMap::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => name = line,
            Some(field) => messages.entry(name).or_default().0.extend(row(field)),
        }
    }
    messages
}

/// A line such as `2 secrets map source`.
fn row(line: &'static str) -> Option<Field> {
    let mut words = line.split(' ');
    let (number, name) = (words.next()?.parse().ok()?, words.next()?);
    let mut kind = words.next()?;
    let is_map = kind == "map";
    if is_map {
        kind = words.next()?;
    }
    let kind = match kind {
        "text" => Kind::Text,
        "source" => Kind::Source,
        "any" => Kind::Any,
        "struct" => Kind::Struct,
        "message" => Kind::Message(words.next()?),
        _ => return None,
    };
    Some(Field { number, name, is_map, kind })
}

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> =
    LazyLock::new(|| read(include_str!("fields.txt")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_read_and_each_message_is_there() {
        let text = include_str!("fields.txt");
        let lines = text.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(MESSAGES.values().map(|message| message.0.len()).sum::<usize>(), lines);
        for field in MESSAGES.values().flat_map(|message| &message.0) {
            if let Kind::Message(name) = field.kind {
                assert!(Message::of_name(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn fields_have_two_names() {
        let message =
            Message::of_url("any.host/envoy.extensions.transport_sockets.tls.v3.TlsCertificate").unwrap();
        for name in ["private_key", "privateKey"] {
            assert_eq!(message.field_of_name(name).unwrap().number, 2, "{name}");
        }
        assert!(message.field_of_name("certificate_chain").is_none());
        assert!(Message::of_url("envoy.extensions.transport_sockets.tls.v3.TlsCertificate").is_none());
    }
}
