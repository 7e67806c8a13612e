//! Resources as they were received, with the result of gRPC's validation, for observing clients.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;

use super::{Context, Invalid, Resource, ResourceType};
use crate::wire::Fields;

/// A profile of validation: the resources that a client accepts from its management servers.
///
/// Accepted responses are ACKed, others NACKed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Validation {
    /// Resources that a gRPC client could use: each must pass all rules of its type (A46, `docs/spec/VALIDATION.md`).
    #[default]
    Grpc,
    /// All well-formed messages: each resource is provided as an [`Inspected`] one, with the reason why a gRPC client could
    /// not use it, if there is one. This is for dashboards, audits, tests and controllers that observe a mesh of proxies
    /// without sending a NACK for the contents of a resource.
    ///
    /// Malformed protobuf messages are still NACKed, and so are responses that violate the protocol, such as one with a
    /// duplicate name.
    Observe,
}

/// A resource as it was received: the message, and the typed value or the reason why a gRPC client could not use it.
///
/// It is watched in place of the resource, with the profile [`Observe`](Validation::Observe):
///
/// ```no_run
/// use xdskit::{
///     Client, ResourceSelector, Observed,
///     resource::{Cluster, Inspected},
/// };
///
/// async fn audit(client: &Client) {
///     let mut clusters = client.watch_all::<Inspected<Cluster>>(ResourceSelector::All);
///     while let Some(members) = clusters.next().await {
///         for (name, seen) in members.iter() {
///             let Observed::Present { resource, version, .. } = seen else { continue };
///             match resource.typed() {
///                 Ok(cluster) => println!("{name} in version {version}: {:?}", cluster.kind),
///                 Err(why) => println!("{name} in version {version}, not for gRPC clients: {why}"),
///             }
///         }
///     }
/// }
/// ```
///
/// In a client with [`Validation::Grpc`] these watches use separate streams, since ACK and NACK differ between the
/// profiles; see `ClientBuilder::validation`.
pub struct Inspected<T> {
    /// The message as it was sent.
    bytes: Bytes,
    /// The resource by gRPC's rules, or the reason why they reject it.
    typed: Result<Arc<T>, Invalid>,
}

impl<T: Resource> Inspected<T> {
    /// The message, exactly as it was received, with its credentials.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The resource as in a gRPC client.
    ///
    /// # Errors
    /// The field and the reason why a gRPC client rejects it.
    pub fn typed(&self) -> Result<&Arc<T>, &Invalid> {
        self.typed.as_ref()
    }

    /// The message as canonical JSON, with its type in `@type` and the field names of its definition. Fields without a
    /// definition in this crate are omitted. Extensions of unknown types are opaque: `@type`, and the bytes in base64 as
    /// `@bytes`. So are nested messages that are malformed or too deep, and messages of types of the application.
    ///
    /// Credentials such as inline private keys are replaced by `[redacted]`, in extensions as well.
    ///
    /// # Errors
    /// The type is [sensitive](Resource::SENSITIVE).
    #[cfg(feature = "json")]
    pub fn to_json(&self) -> Result<serde_json::Value, Invalid> {
        if T::SENSITIVE {
            return Err(Invalid::new("holds secrets, which are not shown"));
        }
        let redacted = crate::redact::redacted(T::TYPE_URL, &self.bytes);
        Ok(crate::format::show_any(T::TYPE_URL, redacted.as_deref().unwrap_or(&self.bytes)))
    }
}

impl<T: Resource> Resource for Inspected<T> {
    const TYPE_URL: &'static str = T::TYPE_URL;
    const FULL_STATE: bool = T::FULL_STATE;
    const SENSITIVE: bool = T::SENSITIVE;
    const COLLECTION_TYPE_URL: Option<&'static str> = T::COLLECTION_TYPE_URL;
    const VALIDATION: Validation = Validation::Observe;

    fn name(bytes: &[u8]) -> Result<Cow<'_, str>, Invalid> {
        T::name(bytes)
    }

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        // The message must be one. What is wrong deeper inside is the reason why there is no typed value.
        for field in Fields::of(bytes) {
            field?;
        }
        // By the type and not by `T::parse`: a parser that panics is a reason as well (G7), and the budget of regular expressions applies.
        let typed = ResourceType::of::<T>().parse(bytes, cx);
        let typed = typed.map(|typed| typed.downcast().expect("the type parses resources of its own"));
        Ok(Self { bytes: bytes.clone(), typed })
    }
}

impl<T> Clone for Inspected<T> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), typed: self.typed.clone() }
    }
}

/// Equality is that of the messages.
impl<T> PartialEq for Inspected<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Inspected<T> {}

/// The bytes may be secret, so they are omitted.
impl<T: fmt::Debug> fmt::Debug for Inspected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspected")
            .field("size", &self.bytes.len())
            .field("typed", &self.typed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        pb::envoy::config::cluster::v3::{self as pb, cluster::ClusterDiscoveryType},
        resource::{Cluster, Secret},
    };

    fn inspect<T: Resource>(bytes: impl Into<Bytes>) -> Result<Inspected<T>, Invalid> {
        Inspected::parse(&bytes.into(), &Context::new())
    }

    fn cluster(kind: pb::cluster::DiscoveryType) -> Vec<u8> {
        let kind = Some(ClusterDiscoveryType::Type(kind.into()));
        pb::Cluster { name: "shop".into(), cluster_discovery_type: kind, ..Default::default() }
            .encode_to_vec()
    }

    #[test]
    fn what_grpc_could_not_use_is_accepted_with_the_reason() {
        let bytes = cluster(pb::cluster::DiscoveryType::Static);
        let invalid = Cluster::parse(&bytes.clone().into(), &Context::new()).unwrap_err();
        let seen = inspect::<Cluster>(bytes.clone()).unwrap();
        assert_eq!(seen.typed().unwrap_err(), &invalid);
        assert_eq!(*seen.bytes(), bytes);
        assert_eq!(Inspected::<Cluster>::name(&bytes).unwrap(), "shop");
    }

    #[test]
    fn what_is_no_message_is_not_accepted() {
        let error = inspect::<Cluster>(b"\x0a\x04shop\xff".as_slice()).unwrap_err();
        assert!(error.to_string().starts_with("not a valid message: "), "{error}");
        // The malformed bytes are within a field, so the error is that of the typed value.
        let seen = inspect::<Cluster>(b"\x0a\x04shop\x1a\x01\xff".as_slice()).unwrap();
        assert!(seen.typed().unwrap_err().to_string().contains("not a valid message"));
    }

    #[test]
    #[cfg(feature = "json")]
    fn the_message_is_shown_as_json_with_its_type() {
        let seen = inspect::<Cluster>(cluster(pb::cluster::DiscoveryType::Static)).unwrap();
        let shown = serde_json::json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "shop", "type": "STATIC",
        });
        assert_eq!(seen.to_json().unwrap(), shown);
        let garbage = inspect::<Cluster>(b"\x0a\x04shop\x9a\x01\x01\xff".as_slice()).unwrap();
        let shown = serde_json::json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "@bytes": "CgRzaG9wmgEB/w==",
        });
        assert_eq!(garbage.to_json().unwrap(), shown);
    }

    #[test]
    fn secrets_are_not_shown() {
        let seen = inspect::<Secret>(b"\x0a\x03key".as_slice()).unwrap();
        assert!(!format!("{seen:?}").contains("107"), "the bytes are in no log");
        #[cfg(feature = "json")]
        assert_eq!(seen.to_json().unwrap_err().to_string(), "holds secrets, which are not shown");
    }
}
