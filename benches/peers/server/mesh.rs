//! The resources of the mesh as bytes, by number.

#[path = "../../mesh/mod.rs"]
mod plain;

use prost::Message;

/// The name of a cluster and of its assignment, as Istio would have it. The clients spell it, too.
pub(crate) fn name(number: usize) -> String {
    format!("{PREFIX}{number:06}.shop.svc.cluster.local")
}

/// The number of a name.
pub(crate) fn number(name: &[u8]) -> Option<usize> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?.get(..6)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A cluster of 116 bytes. `turn` changes the limit of its concurrent requests.
pub(crate) fn cluster(number: usize, turn: u32) -> Vec<u8> {
    plain::cluster(name(number), name(number), (turn > 0).then_some(turn)).encode_to_vec()
}

/// An assignment of 324 bytes. `turn` changes the weight of its locality.
pub(crate) fn assignment(number: usize, turn: u32) -> Vec<u8> {
    plain::assignment(name(number), number, 1 + turn, None).encode_to_vec()
}

const PREFIX: &str = "outbound|8080||service-";
