//! Responses to REST requests, which have no streams.

use prost::Message;

use super::{Settings, sotw::Whole};
use crate::{
    control_plane::store::Store,
    pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
};

/// Responds to a REST request, or returns `None` if the client's version is current (D10, D11).
///
/// REST has no streams, so each request is independent: one without names requests all resources of the type, as one
/// for `*` does, and one with names gets all of them, whatever was sent before. The version of a response to names
/// ends with a digest of the resources, by which the next request is compared; the rest is the version of the type,
/// as on streams.
pub(in crate::control_plane) fn answer(
    request: &DiscoveryRequest,
    store: &Store,
    settings: &Settings,
) -> Option<DiscoveryResponse> {
    let Whole { mut response, names, versions } = Whole::of(request, store, settings);
    if let Some(names) = names {
        let digest = digest(&names, &versions, &response);
        if request.version_info.rsplit_once(SEPARATOR).is_some_and(|(_, known)| known == digest) {
            return None;
        }
        response.version_info = format!("{}{SEPARATOR}{digest}", response.version_info);
    }
    (response.version_info != request.version_info).then_some(response)
}

/// Returns a digest that differs between responses to names.
fn digest(names: &[String], versions: &[(String, String)], response: &DiscoveryResponse) -> String {
    let mut hash = Fnv::default();
    names.iter().for_each(|name| hash.part(name.as_bytes()));
    // The end of the names: they are a part of the digest, since a further name is another request.
    hash.part(b"");
    for (name, version) in versions {
        hash.part(name.as_bytes());
        hash.part(version.as_bytes());
    }
    // Errors have no version of their own.
    response.resource_errors.iter().for_each(|error| hash.part(&error.encode_to_vec()));
    format!("{:016x}", hash.0)
}

/// FNV-1a, which is stable across platforms and runs.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds a delimited part, so that different parts have different digests.
    fn part(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Separates the version of the type from the digest.
const SEPARATOR: char = '-';

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::{
        AnyResource,
        type_url::{CLUSTER, ENDPOINTS},
    };

    struct Polls {
        store: Store,
        type_url: &'static str,
        version: String,
    }

    impl Polls {
        fn of(type_url: &'static str) -> Self {
            let mut store = Store::new().with_version_prefix("p");
            store.update(|tx| {
                for name in ["a", "b"] {
                    tx.set(AnyResource::new(type_url, name, name.to_owned()));
                }
            });
            Self { store, type_url, version: String::new() }
        }

        fn set(&mut self, name: &str, bytes: &'static str) {
            let resource = AnyResource::new(self.type_url, name, bytes);
            self.store.update(|tx| {
                tx.set(resource);
            });
        }

        /// Returns the bytes of the resources, or `None` if unchanged.
        fn poll(&mut self, names: &[&str]) -> Option<Vec<String>> {
            let request = DiscoveryRequest {
                version_info: self.version.clone(),
                type_url: self.type_url.into(),
                resource_names: names.iter().map(|&name| name.to_owned()).collect(),
                ..Default::default()
            };
            let response = answer(&request, &self.store, &Settings::default())?;
            assert!(response.nonce.is_empty() && response.type_url == self.type_url);
            self.version = response.version_info;
            let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            Some(response.resources.iter().map(|any| text(&any.value)).collect())
        }
    }

    fn owned(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn d10_no_names_and_a_star_request_everything_of_any_type() {
        for type_url in [CLUSTER, ENDPOINTS] {
            let mut polls = Polls::of(type_url);
            assert_eq!(polls.poll(&[]), owned(&["a", "b"]));
            assert_eq!(polls.version, "p1");
            assert_eq!(polls.poll(&["*"]), None);
            polls.set("c", "c");
            assert_eq!(polls.poll(&["*"]), owned(&["a", "b", "c"]));
            assert_eq!(polls.poll(&[]), None);
        }
    }

    #[test]
    fn d11_the_current_version_of_the_same_names_is_not_sent_again() {
        for type_url in [CLUSTER, ENDPOINTS] {
            let mut polls = Polls::of(type_url);
            assert_eq!(polls.poll(&["a"]), owned(&["a"]));
            assert_eq!(polls.poll(&["a"]), None);
            polls.set("b", "other");
            assert_eq!(polls.poll(&["a"]), None, "what changed is another resource");
            polls.set("a", "new");
            assert_eq!(polls.poll(&["a"]), owned(&["new"]));
            polls.store.update(|tx| {
                tx.remove(type_url, "a");
            });
            assert_eq!(polls.poll(&["a"]), owned(&[]));
            assert_eq!(polls.poll(&["a"]), None);
        }
    }

    #[test]
    fn d13_other_names_are_answered_although_nothing_changed() {
        let mut polls = Polls::of(ENDPOINTS);
        assert_eq!(polls.poll(&["a"]), owned(&["a"]));
        assert_eq!(polls.poll(&["b", "a"]), owned(&["a", "b"]));
        assert_eq!(polls.poll(&["a", "b", "a"]), None);
        assert_eq!(polls.poll(&["a", "b", "c"]), owned(&["a", "b"]));
        assert_eq!(polls.poll(&[]), owned(&["a", "b"]));
        assert_eq!(polls.poll(&["a"]), owned(&["a"]));
    }

    #[test]
    fn errors_are_part_of_what_names_stand_for() {
        let mut polls = Polls::of(ENDPOINTS);
        polls.poll(&["a", "x"]);
        for message in ["no", "never"] {
            polls.store.update(|tx| {
                tx.set_error(ENDPOINTS, "x", 7, message);
            });
            assert_eq!(polls.poll(&["a", "x"]), owned(&["a"]));
            assert_eq!(polls.poll(&["a", "x"]), None);
        }
    }
}
