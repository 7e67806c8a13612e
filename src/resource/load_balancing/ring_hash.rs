//! ring_hash (A42, A76).

use serde_json::{Map, Value};

use super::{LbPolicy, RingHash};
use crate::{
    pb::{envoy::extensions::load_balancing_policies::ring_hash::v3 as pb, google::protobuf as google},
    resource::Invalid,
};

/// The settings in the message of xDS, which cannot name a header to hash.
pub(super) fn from_message(from: pb::RingHash) -> Result<LbPolicy, Invalid> {
    use pb::ring_hash::HashFunction;
    // The default is Envoy's, which is XX_HASH too (C13).
    if ![HashFunction::DefaultHash as i32, HashFunction::XxHash as i32].contains(&from.hash_function) {
        return Err(Invalid::field("hash_function", "only XX_HASH is supported"));
    }
    sizes(from.minimum_ring_size, from.maximum_ring_size)
}

/// Rules C7 and C13.
pub(super) fn sizes(
    minimum: Option<google::UInt64Value>,
    maximum: Option<google::UInt64Value>,
) -> Result<LbPolicy, Invalid> {
    let size = |from: Option<google::UInt64Value>, field, default| {
        from.map_or(Ok(default), |google::UInt64Value { value }| ring_size(field, value))
    };
    let names = ["minimum_ring_size", "maximum_ring_size"];
    let sizes = [size(minimum, names[0], MIN_RING_SIZE)?, size(maximum, names[1], MAX_RING_SIZE)?];
    policy(sizes, names, None)
}

/// The fields of gRPC's service config (CH3.28, CH3.34).
pub(super) fn from_json(fields: &Map<String, Value>) -> Result<LbPolicy, Invalid> {
    let size = |field, default| match fields.get(field) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => {
            // Numbers of 64 bits are texts in protobuf's JSON.
            let text = value.as_str().and_then(|text| text.parse().ok());
            let number = value.as_u64().or(text).ok_or_else(|| {
                Invalid::field(field, format!("must be a whole number that is not negative, is {value}"))
            })?;
            ring_size(field, number)
        }
    };
    let names = ["minRingSize", "maxRingSize"];
    let sizes = [size(names[0], MIN_RING_SIZE)?, size(names[1], MAX_RING_SIZE_IN_JSON)?];
    let header = match fields.get(HEADER) {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if name.is_empty() => None,
        Some(Value::String(name)) => Some(header_name(name)?),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Invalid::field(HEADER, "must be a text"));
        }
    };
    policy(sizes, names, header)
}

/// Checks a size, whichever of the two it is.
fn ring_size(field: &str, value: u64) -> Result<u32, Invalid> {
    u32::try_from(value)
        .ok()
        .filter(|size| (1..=MAX_RING_SIZE).contains(size))
        .ok_or_else(|| Invalid::field(field, format!("must be between 1 and {MAX_RING_SIZE}, is {value}")))
}

/// `minimum` and `maximum` are the names of the fields, which differ between the message and the service config.
fn policy(
    [minimum_ring_size, maximum_ring_size]: [u32; 2],
    [minimum, maximum]: [&str; 2],
    request_hash_header: Option<Box<str>>,
) -> Result<LbPolicy, Invalid> {
    if minimum_ring_size > maximum_ring_size {
        let reason = format!("must be at most {maximum}, is {minimum_ring_size} > {maximum_ring_size}");
        return Err(Invalid::field(minimum, reason));
    }
    Ok(LbPolicy::RingHash(Box::new(RingHash { minimum_ring_size, maximum_ring_size, request_hash_header })))
}

/// The name of a header of metadata in lower case: binary headers cannot be hashed (A76).
fn header_name(name: &str) -> Result<Box<str>, Invalid> {
    let lower = name.to_ascii_lowercase();
    let is_valid = lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_valid {
        return Err(Invalid::field(HEADER, format!("{name:?} is no name of a header")));
    }
    if lower.ends_with("-bin") {
        return Err(Invalid::field(HEADER, format!("{name:?} is a binary header")));
    }
    Ok(lower.into())
}

/// The field with the name of the header to hash.
const HEADER: &str = "requestHashHeader";
/// The default of the smallest ring, in both forms.
const MIN_RING_SIZE: u32 = 1024;
/// The limit of both sizes, and the default of the largest ring in the message of xDS.
const MAX_RING_SIZE: u32 = 8_388_608;
/// The default of gRPC's service config (A42).
const MAX_RING_SIZE_IN_JSON: u32 = 4096;

#[cfg(test)]
mod tests {
    use prost::Message;
    use serde_json::json;

    use super::*;
    use crate::{
        pb::{udpa, xds},
        resource::{Context, load_balancing},
    };

    fn parse(fields: Value) -> Result<LbPolicy, String> {
        let Value::Object(fields) = fields else { panic!("{fields}") };
        from_json(&fields).map_err(|error| error.to_string())
    }

    fn ring(minimum_ring_size: u32, maximum_ring_size: u32, header: Option<&str>) -> LbPolicy {
        let request_hash_header = header.map(Into::into);
        LbPolicy::RingHash(Box::new(RingHash { minimum_ring_size, maximum_ring_size, request_hash_header }))
    }

    #[test]
    fn ch3_28_ring_sizes_of_the_service_config_are_1024_and_4096_by_default() {
        assert_eq!(parse(json!({})), Ok(ring(1024, 4096, None)));
        assert_eq!(parse(json!({"minRingSize": null, "other": 1})), Ok(ring(1024, 4096, None)));
        let most = json!({"minRingSize": "7", "maxRingSize": 8_388_608});
        assert_eq!(parse(most), Ok(ring(7, 8_388_608, None)));
        for (fields, error) in [
            (json!({"minRingSize": 4097}), "minRingSize: must be at most maxRingSize, is 4097 > 4096"),
            (json!({"minRingSize": 0}), "minRingSize: must be between 1 and 8388608, is 0"),
            (json!({"maxRingSize": "8388609"}), "maxRingSize: must be between 1 and 8388608, is 8388609"),
            (json!({"maxRingSize": -1}), "maxRingSize: must be a whole number that is not negative, is -1"),
            (
                json!({"minRingSize": true}),
                "minRingSize: must be a whole number that is not negative, is true",
            ),
        ] {
            assert_eq!(parse(fields), Err(error.to_owned()));
        }
    }

    #[test]
    fn ch3_34_the_header_is_a_name_of_metadata_that_is_not_binary() {
        let with = |header: Value| parse(json!({"requestHashHeader": header}));
        assert_eq!(with(json!("X-User_1.id")), Ok(ring(1024, 4096, Some("x-user_1.id"))));
        assert_eq!(with(json!("")), Ok(ring(1024, 4096, None)));
        for (header, reason) in [
            (json!(":path"), "\":path\" is no name of a header"),
            (json!("x user"), "\"x user\" is no name of a header"),
            (json!("x-ü"), "\"x-ü\" is no name of a header"),
            (json!("x-user-BIN"), "\"x-user-BIN\" is a binary header"),
            (json!(1), "must be a text"),
        ] {
            assert_eq!(with(header), Err(format!("requestHashHeader: {reason}")));
        }
    }

    #[test]
    fn ch3_28_the_service_config_of_ring_hash_is_a_typed_struct() {
        let kind = google::value::Kind::StringValue("x-user".to_owned());
        let fields = [("requestHashHeader".to_owned(), google::Value { kind: Some(kind) })].into();
        let (type_url, value) = ("type.googleapis.com/ring_hash_experimental", google::Struct { fields });
        let newer = xds::r#type::v3::TypedStruct { type_url: type_url.into(), value: Some(value.clone()) };
        let older = udpa::r#type::v1::TypedStruct { type_url: type_url.into(), value: Some(value) };
        for (name, bytes) in [
            ("xds.type.v3.TypedStruct", newer.encode_to_vec()),
            ("udpa.type.v1.TypedStruct", older.encode_to_vec()),
        ] {
            let any = google::Any { type_url: format!("type.googleapis.com/{name}"), value: bytes.into() };
            let parsed = load_balancing::policy(&any, &Context::new(), 0).unwrap();
            assert_eq!(parsed.ok(), Some(ring(1024, 4096, Some("x-user"))));
        }
    }
}
