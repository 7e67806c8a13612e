//! The router, which ends every list of filters.

use prost::Message;
use serde::Serialize;

use super::kinds::{HttpFilterExtension, NoOverride, Sides};
use crate::{
    pb::envoy::extensions::filters::http::router::v3 as pb,
    resource::{Context, Extension, Invalid, Payload, remarks, unexecuted},
};

/// The filter that sends requests along their routes (A39-7). Its settings are for proxies alone and skipped (H1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Router;

impl Extension for Router {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.router.v3.Router";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = payload.message()?;
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
