//! The text form of the subject of a certificate (RFC 2253), as RBAC matches it (SV9.16).
//!
//! The standard leaves implementations some choices. They are made as in Java, whose servers have the same policies: attributes
//! beside those of the standard's table have their number and the bytes of their value, and `=`, `#` and the character 0 are
//! escaped anywhere. Values that Java would garble are decoded by their type instead, and those that are no text are bytes.

use std::{borrow::Cow, fmt::Write};

use x509_cert::{
    der::{Encode, Tag, Tagged, asn1::AnyRef},
    name::Name,
};

/// The text form of a name: the most specific part first, as in `CN=cart,O=Shop`.
pub(super) fn text(name: &Name) -> String {
    let mut text = String::new();
    // The encoding begins with the least specific part.
    let parts: Vec<_> = name.as_ref().iter().collect();
    for (at, part) in parts.into_iter().rev().enumerate() {
        for (of_part, attribute) in part.iter().enumerate() {
            text.push_str(match (at, of_part) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            let oid = attribute.oid.to_string();
            let keyword = KEYWORDS.iter().find(|(known, _)| *known == oid).map(|(_, keyword)| *keyword);
            text.push_str(keyword.unwrap_or(&oid));
            text.push('=');
            let value = AnyRef::from(&attribute.value);
            match keyword.and_then(|_| string(value)) {
                Some(value) => escape(&value, &mut text),
                None => hex(value, &mut text),
            }
        }
    }
    text
}

/// The text of a value of a string type; `None` for other types, and for bytes that are no text.
fn string(value: AnyRef<'_>) -> Option<Cow<'_, str>> {
    let (tag, bytes) = (value.tag(), value.value());
    if tag == Tag::TeletexString {
        // T.61, which is read as Latin-1 everywhere.
        return Some(bytes.iter().map(|byte| char::from(*byte)).collect());
    }
    if tag == Tag::BmpString {
        let units = bytes.chunks(2).map(|unit| Some(u16::from_be_bytes(unit.try_into().ok()?)));
        let units = units.collect::<Option<Vec<_>>>()?;
        return String::from_utf16(&units).ok().map(Cow::Owned);
    }
    let text = str::from_utf8(bytes).ok()?;
    let is_text =
        tag == Tag::Utf8String || text.is_ascii() && (tag == Tag::PrintableString || tag == Tag::Ia5String);
    is_text.then_some(Cow::Borrowed(text))
}

/// Appends a text with escapes.
fn escape(value: &str, text: &mut String) {
    // Spaces at both ends are escaped; in a value of spaces alone, all of them.
    let start = value.len() - value.trim_start_matches(is_space).len();
    let end = value.trim_end_matches(is_space).len();
    for (at, c) in value.char_indices() {
        match c {
            '\0' => text.push_str("\\00"),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => text.extend(['\\', c]),
            _ if is_space(c) && (at < start || at >= end) => text.extend(['\\', c]),
            _ => text.push(c),
        }
    }
}

fn is_space(c: char) -> bool {
    c == ' ' || c == '\r'
}

/// Appends the encoding of a value.
fn hex(value: AnyRef<'_>, text: &mut String) {
    text.push('#');
    for byte in value.to_der().unwrap_or_default() {
        // A `String` takes any text.
        let _ = write!(text, "{byte:02x}");
    }
}

/// The attributes with a keyword (RFC 2253, section 2.3).
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

#[cfg(test)]
mod tests;
