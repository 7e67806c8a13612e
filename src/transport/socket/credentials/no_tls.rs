//! Builds without TLS.

use tonic::codegen::StdError;

use super::Secured;
use crate::{
    config::{Server, TlsConfig},
    dial::{Alpn, Socket},
};

/// No TLS is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TlsCache;

/// The TLS of a connection, of which there is no value.
pub(super) enum Tls {}

impl TlsCache {
    #[allow(clippy::unused_async, reason = "files are read with the feature")]
    pub(super) async fn load(&self, _: &Server, _: TlsConfig, _: Alpn) -> Result<Tls, String> {
        Err("this build of xdskit lacks the feature `tls`".to_owned())
    }
}

impl Tls {
    #[allow(clippy::unused_async, reason = "handshakes are made with the feature")]
    pub(super) async fn secure(&self, _: Socket, _: &str) -> Result<Secured, StdError> {
        match *self {}
    }
}
