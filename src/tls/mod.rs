//! TLS of connections to endpoints and to management servers: certificate material from files and plugins, which is reloaded, and the
//! verification of servers.
//!
//! ```text
//!   files ───▶ Material (Refresh: the last good content) ──┐
//!   plugins ─▶ PluginMaterial ────────────────────────────┤
//!   CRLs ────▶ Revocation ────────────────────────────────┴─▶ ClientTls ──▶ Generation ──▶ handshake, verified by Verifier
//! ```
//!
//! The [`Crypto`] of all of it is chosen by the application, the process or the features.
//!
//! Handshakes of a [`ClientTls`] share a `Generation`, and its sessions, as long as the material is the same.

mod client;
mod crypto;
mod explain;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod fixture;
mod generation;
mod material;
mod names;
#[allow(dead_code, unreachable_pub, reason = "servers are to use it")]
mod peer_certificates;
mod peer_identity;
#[cfg(any(test, feature = "rbac", feature = "fuzzing"))]
mod peer_names;
mod plugin;
mod providers;
mod published;
mod refresh;
pub(crate) mod revocation;
mod rfc_2253;
#[cfg(test)]
pub(crate) mod scripted;
#[allow(dead_code, unused_imports, reason = "servers are to use it")]
pub(crate) mod server;
mod sources;
mod spiffe;
mod unreadable;
mod validity;
mod verifier;
mod watching;

#[allow(unreachable_pub, unused_imports, reason = "servers are to use it")]
pub use self::peer_certificates::PeerCertificates;
#[cfg(any(test, feature = "rbac", feature = "fuzzing"))]
pub(crate) use self::peer_names::names_of_peer;
pub(crate) use self::{
    client::{ClientTls, Connected},
    crypto::{Crypto, NoCrypto},
    generation::{Generation, HTTP2, HandshakeError},
    providers::{ProviderRotations, Providers, RotatedInstance},
    revocation::Revocation,
    unreadable::{TOO_LARGE, Unreadable},
    verifier::refusal,
};
#[cfg(feature = "spiffe")]
pub(crate) use self::{explain::with_causes, validity::date};
#[cfg(any(feature = "fuzzing", feature = "spiffe"))]
pub(crate) use self::{names::CertificateNames, spiffe::SpiffeId};
pub use self::{peer_identity::PeerIdentity, revocation::RevocationLists};
#[cfg(feature = "fuzzing")]
pub(crate) use self::{
    spiffe::TrustBundleMap,
    verifier::{NameRule, TrustRoots, Verifier},
};
