//! Parsers of messages that several resources have in common.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use serde::Serializer;
use serde_json::{Number, Value};

use super::{Invalid, extension::Payload, v2};
use crate::{
    pb::{envoy::config::core::v3 as core, google::protobuf as google, udpa, xds},
    wire::{self, Fields, Malformed},
};

/// Returns the message name of a type URL, which is the part after the last slash; for the name of an extension in v2, that
/// in v3.
pub(crate) fn message_name(type_url: &str) -> &str {
    v2::v3_name(type_url.rsplit('/').next().unwrap_or(type_url))
}

/// Resolves the `TypedStruct` in an `Any` at an extension point: returns the name of the configuration message, and
/// the payload.
pub(crate) fn extension(any: &google::Any) -> Result<(Cow<'_, str>, Payload), Invalid> {
    let (type_url, value) = match message_name(&any.type_url) {
        "xds.type.v3.TypedStruct" => {
            let typed: xds::r#type::v3::TypedStruct = decode(any)?;
            (typed.type_url, typed.value)
        }
        "udpa.type.v1.TypedStruct" => {
            let typed: udpa::r#type::v1::TypedStruct = decode(any)?;
            (typed.type_url, typed.value)
        }
        name => return Ok((Cow::Borrowed(name), Payload::Message(any.value.clone()))),
    };
    let name = message_name(&type_url).to_owned();
    Ok((Cow::Owned(name), Payload::Struct(json_object(value.unwrap_or_default()))))
}

/// Decodes the value of an `Any` whose type has been checked.
pub(crate) fn decode<M: Message + Default>(any: &google::Any) -> Result<M, Invalid> {
    M::decode(any.value.clone()).map_err(|e| Invalid::from(e).at("value"))
}

/// Reads a resource from its bytes without decoding it as a whole.
///
/// `read` expects the output of encoders: each message in one part, and one field of a oneof. Other bytes, and
/// rejected ones, are decoded as the message `M`, encoded again and read again. So every encoding has the meaning
/// that protobuf decoders give it, and malformed messages get the errors of a decoder.
pub(crate) fn read<M: Message + Default, T>(
    bytes: &Bytes,
    read: impl Fn(&Bytes) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    read(bytes).or_else(|_| read(&M::decode(bytes.clone())?.encode_to_vec().into()))
}

/// Returns the entries of a repeated message field, whose encoding has been checked.
pub(crate) fn repeated(bytes: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    // Errors cannot occur: the caller has read all fields of the message before.
    let of_number = Fields::of(bytes).filter_map(Result::ok).filter(move |field| field.number == number);
    of_number.filter_map(|field| field.bytes().ok())
}

/// Reads a `UInt32Value`.
///
/// # Errors
/// The bytes are not a message, or its value is not a number. Without a value it is 0.
pub(crate) fn uint32_value(bytes: &[u8]) -> Result<u32, Malformed> {
    let mut value = 0;
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == 1 {
            // Truncated, as protobuf decoders do with 32-bit fields.
            value = field.varint()? as u32;
        }
    }
    Ok(value)
}

/// Parses each entry of a repeated field into an exactly allocated slice.
pub(crate) fn each<F, T>(
    field: &str,
    from: Vec<F>,
    mut parse: impl FnMut(F) -> Result<T, Invalid>,
) -> Result<Box<[T]>, Invalid> {
    let mut parsed = Vec::with_capacity(from.len());
    for (i, entry) in from.into_iter().enumerate() {
        parsed.push(parse(entry).map_err(|e| e.at_index(field, i))?);
    }
    Ok(parsed.into())
}

/// A duration that must not be negative.
pub(crate) fn duration(proto: &google::Duration) -> Result<Duration, Invalid> {
    let seconds = u64::try_from(proto.seconds).ok().filter(|s| *s <= MAX_SECONDS);
    let seconds = seconds.ok_or_else(|| {
        Invalid::field("seconds", format!("must be between 0 and {MAX_SECONDS}, is {}", proto.seconds))
    })?;
    let nanos = u32::try_from(proto.nanos).ok().filter(|n| *n <= MAX_NANOS).ok_or_else(|| {
        Invalid::field("nanos", format!("must be between 0 and {MAX_NANOS}, is {}", proto.nanos))
    })?;
    Ok(Duration::new(seconds, nanos))
}

/// A duration that must be positive.
pub(crate) fn positive(proto: &google::Duration) -> Result<Duration, Invalid> {
    match duration(proto)? {
        Duration::ZERO => Err(Invalid::new("must be more than 0")),
        duration => Ok(duration),
    }
}

/// Reads a duration in JSON, such as `1.5s`, which is not negative.
pub(super) fn json_duration(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('s')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    Some(Duration::new(seconds.parse().ok()?, format!("{fraction:0<9}").parse().ok()?))
}

/// A duration in protobuf's JSON form: decimal seconds and an `s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos == 0 {
        return format!("{seconds}s");
    }
    let fraction = format!("{nanos:09}");
    format!("{seconds}.{}s", fraction.trim_end_matches('0'))
}

/// A serializer for `#[serde(serialize_with = "..")]` on a `Duration`.
pub(crate) fn serialize_seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&seconds(*duration))
}

/// A serializer for `#[serde(serialize_with = "..")]` on an `Option<Duration>`.
pub(crate) fn serialize_some_seconds<S: Serializer>(
    duration: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => to.serialize_some(&seconds(*duration)),
        None => to.serialize_none(),
    }
}

/// An address to connect to or listen on: an IP literal and a port (E10, S3).
pub(crate) fn socket_addr(address: Option<&core::Address>) -> Result<SocketAddr, Invalid> {
    let socket = socket_address(address)?;
    let ip: IpAddr = socket.address.parse().map_err(|_| {
        Invalid::field("address", format!("{:?} is no IP address", socket.address)).at("socket_address")
    })?;
    let port = port(socket).map_err(|e| e.at("socket_address"))?;
    Ok(SocketAddr::new(ip, port))
}

/// Like [`socket_addr`], from the encoded `Address`.
pub(crate) fn read_socket_addr(bytes: Option<&[u8]>) -> Result<SocketAddr, Invalid> {
    match bytes.map(|bytes| plain_socket_addr(bytes).ok_or(bytes)) {
        Some(Ok(address)) => Ok(address),
        Some(Err(bytes)) => socket_addr(Some(&core::Address::decode(bytes)?)),
        None => socket_addr(None),
    }
}

/// Reads the common encoding of an address: the expected fields and no others, each once.
fn plain_socket_addr(bytes: &[u8]) -> Option<SocketAddr> {
    let mut fields = Fields::of(bytes);
    let (Some(Ok(wire::Field { number: 1, value: wire::Value::Bytes(socket), .. })), None) =
        (fields.next(), fields.next())
    else {
        return None;
    };
    let (mut ip, mut port) = (None, None);
    for field in Fields::of(socket) {
        match field {
            Ok(wire::Field { number: 1, value: wire::Value::Varint(_), .. }) => {}
            Ok(wire::Field { number: 2, value: wire::Value::Bytes(text), .. }) if ip.is_none() => {
                ip = Some(text)
            }
            Ok(wire::Field { number: 3, value: wire::Value::Varint(value), .. }) => port = Some(value as u32),
            // Whatever is unusual is left to the decoder, with its errors.
            Ok(_) | Err(_) => return None,
        }
    }
    let ip = match plain_ipv4(ip?) {
        Some(ip) => ip.into(),
        None => str::from_utf8(ip?).ok()?.parse().ok()?,
    };
    Some(SocketAddr::new(ip, port?.try_into().ok()?))
}

/// Parses four numbers without leading zeros; faster than the general parser of addresses.
fn plain_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split(|byte| *byte == b'.');
    for octet in &mut octets {
        let part = parts.next()?;
        // Without leading zeros, which some parsers read as octal, and the standard library rejects.
        if part.len() > 3 || !matches!(part, [b'0'..=b'9'] | [b'1'..=b'9', ..]) {
            return None;
        }
        let mut value = 0u16;
        for digit in part {
            value = value * 10 + u16::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        }
        *octet = value.try_into().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Returns the `socket_address` of an address, with any content.
pub(crate) fn socket_address(address: Option<&core::Address>) -> Result<&core::SocketAddress, Invalid> {
    let address = address.ok_or(Invalid::new("must be set"))?;
    match &address.address {
        Some(core::address::Address::SocketAddress(socket)) => Ok(socket),
        Some(core::address::Address::Pipe(_)) => Err(Invalid::new("must be a socket_address, is a pipe")),
        None => Err(Invalid::new("must be a socket_address, is not set")),
    }
}

/// Returns the port of a `socket_address`, which must be a number.
pub(crate) fn port(socket: &core::SocketAddress) -> Result<u16, Invalid> {
    use core::socket_address::PortSpecifier;
    match &socket.port_specifier {
        Some(PortSpecifier::PortValue(port)) => u16::try_from(*port)
            .map_err(|_| Invalid::field("port_value", format!("must be at most 65535, is {port}"))),
        Some(PortSpecifier::NamedPort(name)) => {
            Err(Invalid::field("named_port", format!("must be a port_value, is the name {name:?}")))
        }
        None => Err(Invalid::field("port_value", "must be set")),
    }
}

/// Converts a protobuf `Struct` to the equivalent JSON object.
pub(crate) fn json_object(from: google::Struct) -> serde_json::Map<String, Value> {
    from.fields.into_iter().map(|(key, value)| (key, json_value(value))).collect()
}

/// The depth of the recursion is bounded, since decoders have refused deeper messages (G7).
fn json_value(from: google::Value) -> Value {
    use google::value::Kind;
    match from.kind {
        Some(Kind::NullValue(_)) | None => Value::Null,
        Some(Kind::NumberValue(number)) => json_number(number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::BoolValue(yes)) => Value::Bool(yes),
        Some(Kind::StructValue(object)) => Value::Object(json_object(object)),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(json_value).collect()),
    }
}

/// Whole numbers are written without a fraction, as in protobuf's JSON; JSON cannot represent NaN and infinity.
fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < EXACT_INTEGERS {
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// The longest duration of protobuf, some 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;
/// The highest number of nanoseconds beside the seconds of a duration.
const MAX_NANOS: u32 = 999_999_999;
/// A double represents all integers below it exactly.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_in_json_are_decimal_seconds() {
        let of = Duration::new;
        for (text, expected) in [
            ("1s", Some(of(1, 0))),
            ("0.000000001s", Some(of(0, 1))),
            ("1.50s", Some(of(1, 500_000_000))),
            ("1", None),
            ("-1s", None),
            ("1.s", None),
            (".5s", None),
            ("1.0000000001s", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(json_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_bounded_and_written_as_decimal_seconds() {
        let parse = |seconds, nanos| duration(&google::Duration { seconds, nanos });
        for (s, n, text) in [(0, 0, "0s"), (1, 500_000_000, "1.5s"), (3, 7, "3.000000007s"), (90, 0, "90s")] {
            assert_eq!(seconds(parse(s, n).unwrap()), text);
        }
        assert!(parse(315_576_000_000, 999_999_999).is_ok());
        for (s, n, path) in [
            (-1, 0, "seconds"),
            (315_576_000_001, 0, "seconds"),
            (0, -1, "nanos"),
            (0, 1_000_000_000, "nanos"),
        ] {
            assert_eq!(parse(s, n).unwrap_err().path(), path);
        }
    }

    #[test]
    fn typed_structs_of_both_packages_stand_for_the_type_that_they_name() {
        let inner = xds::r#type::v3::TypedStruct { type_url: "a.com/x.Y".into(), value: None };
        for outer in ["type.googleapis.com/xds.type.v3.TypedStruct", "t/udpa.type.v1.TypedStruct"] {
            let any = google::Any { type_url: outer.into(), value: inner.encode_to_vec().into() };
            let (name, payload) = extension(&any).unwrap();
            assert_eq!((&*name, payload), ("x.Y", Payload::Struct(serde_json::Map::new())));
            let broken = google::Any { value: Bytes::from_static(b"\xff"), ..any };
            assert_eq!(extension(&broken).unwrap_err().path(), "value");
        }
        let any = google::Any { type_url: "t/a.B".into(), value: Bytes::from_static(b"x") };
        assert_eq!(extension(&any), Ok(("a.B".into(), Payload::Message(Bytes::from_static(b"x")))));
    }

    proptest! {
        #[test]
        fn plain_addresses_are_those_that_all_know(text in "[0-9]{1,3}([.][0-9]{0,4}){3}|[0-9.]{0,12}") {
            prop_assert_eq!(plain_ipv4(text.as_bytes()), text.parse().ok());
        }
    }

    #[test]
    fn numbers_become_json_that_reads_the_same() {
        let json =
            |n| json_value(google::Value { kind: Some(google::value::Kind::NumberValue(n)) }).to_string();
        assert_eq!([json(3.0), json(-0.5), json(1e300), json(f64::NAN)].join(" "), "3 -0.5 1e+300 null");
    }
}
