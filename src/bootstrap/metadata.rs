//! The metadata of calls to a management server, in both formats: a list of `{key, value}`, as in Envoy's `GrpcService`.

use super::reader::{Fields, Reader};
use crate::config::Metadata;

/// Reads the entries. Values are converted to what is sent.
///
/// The errors have no values, since these may be secret.
pub(super) fn read(items: &[Reader<'_>], convert: impl Fn(&str) -> Result<String, &'static str>) -> Metadata {
    items.iter().filter_map(Reader::fields).fold(Metadata::default(), |metadata, entry| {
        entry.warn_of_others(|name| matches!(name, "key" | "value" | "raw_value" | "rawValue"));
        let Some((key, value)) = entry.required_text("key").zip(value(&entry, &convert)) else {
            return metadata;
        };
        // `with_entry` consumes the metadata even if the entry is invalid, so a copy keeps the entries before it.
        metadata.clone().with_entry(key, value).unwrap_or_else(|invalid| {
            entry.fail(invalid.field(), invalid.reason());
            metadata
        })
    })
}

/// The value: text, or bytes in base64.
fn value(entry: &Fields<'_>, convert: impl Fn(&str) -> Result<String, &'static str>) -> Option<Vec<u8>> {
    let (text, raw) = (entry.get("value"), entry.get("raw_value").or_else(|| entry.get("rawValue")));
    if let Some(raw) = &raw {
        if text.is_some() {
            raw.fail("is there beside value");
            return None;
        }
        let bytes = decode(raw.text()?);
        if bytes.is_none() {
            raw.fail("not base64");
        }
        return bytes;
    }
    let Some(text) = text else {
        entry.fail("value", "missing");
        return None;
    };
    convert(text.text()?).map(String::into_bytes).map_err(|reason| text.fail(reason)).ok()
}

/// Decodes base64, in each form that is valid in protobuf's JSON.
#[cfg(feature = "client")]
fn decode(text: &str) -> Option<Vec<u8>> {
    crate::base::decode_base64(text).ok()
}

/// Without a client there are no calls.
#[cfg(not(feature = "client"))]
fn decode(text: &str) -> Option<Vec<u8>> {
    Some(text.into())
}
