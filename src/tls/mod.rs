//! TLS below the transports and the channel: certificate material from files, and the verification of servers.

#[cfg(feature = "channel")]
mod client;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(feature = "channel")]
mod material;
mod names;
#[cfg(feature = "channel")]
mod providers;
#[cfg(feature = "channel")]
mod refresh;
#[cfg(feature = "channel")]
pub(crate) mod revocation;
mod spiffe;
mod unreadable;
mod verifier;
#[cfg(feature = "channel")]
mod watching;

#[cfg(feature = "channel")]
pub(crate) use self::{
    client::ClientTls,
    providers::{ProviderRotations, Providers, RotatedInstance},
    revocation::Revocation,
};
#[cfg(feature = "channel")]
pub use self::{client::PeerIdentity, revocation::RevocationLists};
#[cfg(feature = "fuzzing")]
pub(crate) use self::{names::CertificateNames, spiffe::SpiffeId};
pub(crate) use self::{
    spiffe::TrustBundleMap,
    unreadable::{TOO_LARGE, Unreadable},
    verifier::{NameRule, TrustRoots, Verifier, refusal},
};
