//! Percent-encoding for `xdstp:` names: a set of characters to escape for each part (rule X2), and a decoder that
//! rejects text whose decoding cannot be represented.

use std::borrow::Cow;

/// The characters to escape in an authority, beside those that no URI may contain. `:` stays, as in a host with a port.
pub(crate) const AUTHORITY: &[u8] = b"/?#";
/// The characters to escape in an id, and in a value for a template: all but those of an RFC 3986 path (A47-3). `/` separates
/// the segments of an id. `:` is not among them: servers that compare the text of names would not find `shop:8000`.
pub(crate) const PATH: &[u8] = b"?#[]";
/// The characters to escape in keys and values of context parameters. `/`, `:` and `?` stay, which is why a name is split at
/// its first `?` before it is split at slashes.
pub(crate) const PARAM: &[u8] = b"#[]&=";
/// The characters to escape in the value of a directive. An alternative is a whole name in this form: its `%` and `#` are
/// escaped, `/` and `?` stay.
pub(crate) const DIRECTIVE: &[u8] = b"#[],";
/// The reason why a text cannot be decoded, and the position in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The position in the text, in bytes.
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) reason: &'static str,
}

/// Appends `text` to `out`, with `%XX` for each byte of `escape` and each byte that RFC 3986 does not allow.
///
/// Bytes of a character beyond ASCII are escaped one by one, as everywhere in URIs. The digits are upper case, so that equal
/// names have equal canonical strings.
pub(crate) fn encode_into(out: &mut String, text: &str, escape: &[u8]) {
    for byte in text.bytes() {
        if is_uri_byte(byte) && !escape.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 0xf)]));
        }
    }
}

/// Appends `text`, which may have escapes, with `%XX` for each byte that RFC 3986 does not allow.
pub(crate) fn encode_illegal_into(out: &mut String, text: &str) {
    // `%` is no byte of a URI by itself and would be escaped again; here it begins an escape that somebody has written.
    for (index, part) in text.split('%').enumerate() {
        if index > 0 {
            out.push('%');
        }
        encode_into(out, part, &[]);
    }
}

/// Replaces each `%XX` by its byte. Unescaped characters are accepted unchanged.
///
/// A `+` stays what it is: names are not forms. A text without `%`, as almost all have none, is borrowed.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, DecodeError> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1).zip(bytes.get(at + 2));
        let Some((high, low)) = digits.and_then(|(h, l)| Some((hex_value(*h)?, hex_value(*l)?))) else {
            return Err(DecodeError { at, reason: "`%` is not followed by two hexadecimal digits" });
        };
        out.push(high << 4 | low);
        at += 3;
    }
    let decoded = String::from_utf8(out);
    // The escapes of one character stand side by side, and any of them may be the wrong one, so that no position helps.
    decoded.map(Cow::Owned).map_err(|_| DecodeError { at: 0, reason: "its escapes do not make UTF-8" })
}

/// Whether RFC 3986 allows the byte unescaped anywhere in a URI (unreserved or reserved; `%` is neither).
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(&byte)
}

/// The value of a hexadecimal digit.
fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The digits of encoded bytes.
const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(text: &str, escape: &[u8]) -> String {
        let mut out = String::new();
        encode_into(&mut out, text, escape);
        out
    }

    #[test]
    fn x2_each_part_escapes_its_own_set() {
        let all = "%/?#:[]&=,";
        assert_eq!(encode(all, AUTHORITY), "%25%2F%3F%23:[]&=,");
        assert_eq!(encode(all, PATH), "%25/%3F%23:%5B%5D&=,");
        assert_eq!(encode(all, PARAM), "%25/?%23:%5B%5D%26%3D,");
        assert_eq!(encode(all, DIRECTIVE), "%25/?%23:%5B%5D&=%2C");
    }

    #[test]
    fn x2_what_no_uri_may_hold_is_escaped_and_accepted_raw() {
        assert_eq!(encode("a b\"\u{7f}é", PATH), "a%20b%22%7F%C3%A9");
        assert_eq!(decode("a b\"é").as_deref(), Ok("a b\"é"));
        assert_eq!(decode("a%20b%22%c3%A9").as_deref(), Ok("a b\"é"));
    }

    #[test]
    fn broken_escapes_are_errors_with_their_position() {
        for (text, at) in [("ab%", 2), ("a%2", 1), ("%zz", 0), ("%%41", 0), ("abc%4é", 3)] {
            assert_eq!(decode(text).map_err(|e| e.at), Err(at), "{text}");
        }
        assert!(decode("%ff").is_err());
    }
}
