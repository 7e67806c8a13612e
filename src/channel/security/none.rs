//! Builds without TLS: all connections are plaintext.

use std::{future::pending, io, sync::Arc};

use http::uri::Authority;

use super::Peer;
use crate::{
    Client,
    balance::{
        identity::{Destination, Rotation},
        status::TlsStatus,
    },
    channel::error::ChannelError,
    client::ClientBuilder,
    config::Target,
    dial::{MaybeTlsStream, Socket},
};

/// The security of a channel's connections.
pub(in crate::channel) struct ChannelSecurity;

/// No settings.
#[derive(Debug, Clone, Default)]
pub(in crate::channel) struct SecuritySettings {}

impl SecuritySettings {
    /// Accepts the settings, of which there are none.
    pub(in crate::channel) fn check(&self, _: &Target) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Chooses nothing.
    pub(in crate::channel) fn choose_crypto(&mut self, _: &Client, _: &Target) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Returns the builder as it is.
    pub(in crate::channel) fn of_client(&self, builder: ClientBuilder) -> ClientBuilder {
        builder
    }
}

/// No certificates rotate.
#[derive(Debug)]
pub(in crate::channel) struct RotationWatch;

/// TLS to an endpoint, of which there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::channel) enum Tls {}

/// The identity of a peer. There is none without the feature `tls`, so there is no value of it.
#[derive(Debug)]
pub(in crate::channel) enum Secured {}

impl ChannelSecurity {
    pub(in crate::channel) fn new(_: &Client, _: SecuritySettings, _: &Authority) -> Self {
        Self
    }

    /// Returns a watch that never yields.
    pub(in crate::channel) fn rotations(&self) -> RotationWatch {
        RotationWatch
    }

    /// Returns the peer of a connection to a destination.
    pub(in crate::channel) fn peer(&mut self, Destination { address, identity }: &Destination) -> Peer {
        Peer { address: *address, proxy: identity.proxy(), tls: None }
    }
}

impl RotationWatch {
    /// Waits forever.
    pub(in crate::channel) async fn next(&mut self) -> Rotation {
        pending().await
    }
}

impl Tls {
    pub(in crate::channel) async fn connect(&self, _: Socket) -> Result<(MaybeTlsStream, Secured), String> {
        match *self {}
    }

    pub(in crate::channel) fn explained(&self, _: io::Error, _: bool) -> io::Error {
        match *self {}
    }
}

impl Secured {
    pub(in crate::channel) fn peer(&self) -> Option<Arc<str>> {
        match *self {}
    }

    pub(in crate::channel) fn status(&self) -> TlsStatus {
        match *self {}
    }

    pub(in crate::channel) fn permits(&self, _: &Authority) -> Result<(), String> {
        match *self {}
    }
}
