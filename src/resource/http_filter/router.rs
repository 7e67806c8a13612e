//! The router, which ends every list of filters.

use prost::Message;
use serde::Serialize;

use super::extension::{HttpFilterExtension, NoOverride, Sides};
use crate::{
    pb::envoy::extensions::filters::http::router::v3 as pb,
    resource::{Context, Extension, Invalid, Payload, remarks, unexecuted},
};

/// The filter that sends requests along their routes. Its settings are for proxies alone and skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Router;

impl Extension for Router {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.router.v3.Router";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = payload.message()?;
        // H1, A39-7: the message must be valid even though all its fields are for proxies.
        let pb::Router {} = pb::Router::decode(message.clone())?;
        remarks::scan(&unexecuted::ROUTER, &message);
        Ok(Self)
    }
}

impl HttpFilterExtension for Router {
    const SIDES: Sides = Sides::Both;
    const IS_TERMINAL: bool = true;
    type Override = NoOverride;
}
