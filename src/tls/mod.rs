//! TLS of connections to endpoints and to management servers: certificate material from files, which is reloaded, and the
//! verification of servers.
//!
//! ```text
//!   files ──▶ Material (Refresh: the last good content) ──┐
//!   CRLs ───▶ Revocation ─────────────────────────────────┴─▶ ClientTls ──▶ Generation ──▶ handshake, verified by Verifier
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
mod peer_identity;
#[cfg(any(test, feature = "rbac", feature = "fuzzing"))]
mod peer_names;
mod providers;
mod refresh;
pub(crate) mod revocation;
#[cfg(any(test, feature = "rbac", feature = "fuzzing"))]
mod rfc_2253;
mod sources;
mod spiffe;
mod unreadable;
mod validity;
mod verifier;
mod watching;

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
#[cfg(feature = "fuzzing")]
pub(crate) use self::{
    names::CertificateNames,
    spiffe::{SpiffeId, TrustBundleMap},
    verifier::{NameRule, TrustRoots, Verifier},
};
pub use self::{peer_identity::PeerIdentity, revocation::RevocationLists};
