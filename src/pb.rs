//! The protobuf messages of the xDS protocol, trimmed to the fields that this crate reads or writes. Exempt from semantic
//! versioning.
//!
//! The feature `unstable-pb` makes this module public; `control-plane` and `test-util` enable it. The client has no use for it: no
//! item outside of [`control_plane`](crate::control_plane) and [`testing`](crate::testing) has a message in its signature,
//! and typed resources are in [`crate::resource`]. An embedded management server, however, is fed with messages, and the
//! builders of [`control_plane::resources`](crate::control_plane::resources) give access to them by `edit`; so the module is public for these.
//!
//! A message grows by a field whenever the crate begins to use that field, and generated structs cannot be
//! `#[non_exhaustive]` without losing `..Default::default()`. **Any release may add messages and fields or change their Rust
//! types.** Construct messages with `..Default::default()`.
//!
//! The definitions are in `proto/` and carry the published packages, names, numbers and types, so that the bytes of any
//! server decode; other fields are skipped. Their Rust form is in `proto/generated/`. `bytes` fields are [`bytes::Bytes`].

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    rustdoc::all,
    clippy::all,
    clippy::use_self,
    clippy::wildcard_enum_match_arm
)]
#![cfg_attr(
    not(feature = "unstable-pb"),
    allow(dead_code, reason = "the messages of servers are for servers")
)]

include!("../proto/generated/pb.rs");
