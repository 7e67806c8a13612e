//! The protobuf messages of the xDS protocol, trimmed to what this crate reads and writes.
//!
//! They are compiled from `proto/`, whose files carry the published packages, names, numbers and types, so every
//! server's bytes decode; fields that the crate does not use are skipped. `bytes` fields are [`bytes::Bytes`].
//! Applications rarely need them: typed resources live in [`crate::resource`]. They are public for those who
//! feed an embedded control plane with messages of their own. Fields may be added in any release.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    rustdoc::all,
    clippy::all,
    clippy::use_self,
    clippy::wildcard_enum_match_arm
)]

include!(concat!(env!("OUT_DIR"), "/pb.rs"));
