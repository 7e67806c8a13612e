//! What the fuzz targets have in common.

pub mod tree;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use serde_json::Value;
use xdskit::{
    pb::envoy::config as pb,
    resource::{
        Cluster, ClusterLoadAssignment, Context, Extension, Invalid, Payload, Registry, Remarks, Resource,
        http_filter::{
            ExtAuthz, ExtProc,
            rbac::{AuditEvent, AuditLogger, AuditLoggerExtension},
        },
    },
};

/// Parses an input as a resource: it is accepted or rejected, and nothing else happens.
///
/// The first byte says what the context knows; the others are the message.
pub fn check<T: Resource + Debug + Clone + PartialEq + Serialize>(input: &[u8]) {
    let Some((&first, message)) = input.split_first() else { return };
    check_in::<T>(Bytes::copy_from_slice(message), &context(first));
}

/// A resource whose parser reads the wire itself.
pub trait ReadsWire: Resource + Debug + Clone + PartialEq + Serialize {
    /// The message of the resource.
    type Message: Message + Default;

    /// Returns the remarks on the resource, and leaves none on it.
    fn take_remarks(&mut self) -> Remarks;
}

impl ReadsWire for Cluster {
    type Message = pb::cluster::v3::Cluster;

    fn take_remarks(&mut self) -> Remarks {
        std::mem::take(&mut self.remarks)
    }
}

impl ReadsWire for ClusterLoadAssignment {
    type Message = pb::endpoint::v3::ClusterLoadAssignment;

    fn take_remarks(&mut self) -> Remarks {
        std::mem::take(&mut self.remarks)
    }
}

/// The same of a resource whose parser reads the wire itself: it says what it would of the message as decoded and written
/// anew.
pub fn check_read<T: ReadsWire>(input: &[u8]) {
    check::<T>(input);
    let Some((&first, message)) = input.split_first() else { return };
    let cx = context(first);
    let mut read = T::parse(&Bytes::copy_from_slice(message), &cx);
    if read.as_ref().is_err_and(|invalid| invalid.reason().contains(FIELD_OF_V2)) {
        // The decoded message does not have it.
        return;
    }
    let mut expected = match T::Message::decode(message) {
        Ok(decoded) => T::parse(&decoded.encode_to_vec().into(), &cx),
        Err(undecodable) => Err(undecodable.into()),
    };
    // Fields that the decoded message does not have are lost when it is written: they are in the remarks on what was read alone.
    if let (Ok(read), Ok(expected)) = (&mut read, &mut expected) {
        let (of_read, of_expected) = (read.take_remarks(), expected.take_remarks());
        assert_eq!(of_read.left_out(), of_expected.left_out());
        let unread: Vec<_> = of_expected
            .not_executed()
            .iter()
            .filter(|field| !of_read.not_executed().contains(field))
            .collect();
        assert!(unread.is_empty(), "{unread:?} is missing in {of_read:?}");
    }
    assert!(read == expected, "it is {read:?}, not {expected:?}");
}

/// What the first byte of an input says that the context knows.
fn context(first: u8) -> Context<'static> {
    let cx = Context::new().with_trusted_server(first & TRUSTED != 0);
    match first & STRANGER == 0 {
        true => cx.with_certificate_providers(&PROVIDERS).with_registry(&REGISTRY),
        false => cx,
    }
}

fn check_in<T: Resource + Debug + Clone + PartialEq + Serialize>(message: Bytes, cx: &Context<'_>) {
    let name = T::name(&message).map(|name| name.into_owned());
    let parsed = match T::parse(&message, cx) {
        Ok(parsed) => parsed,
        Err(invalid) => return assert!(!invalid.reason().is_empty(), "{invalid} says nothing"),
    };
    assert!(format!("{parsed:?}") == format!("{:?}", parsed.clone()));
    let again = T::parse(&message, cx).expect("parsing depends on the message alone");
    let text = serde_json::to_string(&parsed).expect("every resource has a JSON form");
    assert_eq!(text, serde_json::to_string(&again).expect("as before"));
    assert!(text.len() <= MOST_JSON * (message.len() + 64), "{} bytes of {}", text.len(), message.len());
    let view: Value = serde_json::from_str(&text).expect("it is JSON");
    let written = serde_json::to_string(&view).expect("it was read from text");
    assert_eq!(serde_json::from_str::<Value>(&written).expect("it is JSON"), view);
    // The reader of names reads what the decoder reads.
    if let Ok(name) = name {
        let shown = view.get("name").or(view.get("cluster_name"));
        assert_eq!(shown.and_then(Value::as_str), Some(&*name));
    }
}

/// Of the first byte of an input: the server is trusted.
pub const TRUSTED: u8 = 0x80;
/// Of the first byte of an input: the application knows neither certificate providers nor extensions.
pub const STRANGER: u8 = 0x40;

/// The reason of clusters that are rejected for their TLS context of v2.
const FIELD_OF_V2: &str = "is a field of v2 and not supported";

/// Bytes of JSON for a byte of a message: field names, escapes, and defaults that were not in it.
const MOST_JSON: usize = 64;

static PROVIDERS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| ["ca", "id", "default", "google_cloud_private_spiffe"].map(str::to_owned).into());
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    Registry::new()
        .with_lb_policy::<Anything>()
        .with_metadata::<Anything>()
        .with_audit_logger::<Anything>()
        .with_cluster_specifier::<Anything>()
        .with_http_filter::<ExtProc>()
        .with_http_filter::<ExtAuthz>()
});

/// An extension of an application that accepts whatever comes.
#[derive(Debug, PartialEq, Serialize)]
struct Anything;

impl Extension for Anything {
    const TYPE_NAME: &'static str = "my.Policy";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

impl AuditLoggerExtension for Anything {
    fn logger(&self) -> Arc<dyn AuditLogger> {
        Arc::new(Self)
    }
}

impl AuditLogger for Anything {
    fn log(&self, _: &AuditEvent<'_>) {}
}
