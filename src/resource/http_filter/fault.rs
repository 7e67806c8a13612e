//! Faults on purpose (A33).

use std::time::Duration;

use prost::Message;
use serde::Serialize;

use super::{
    extension::{HttpFilterExtension, Sides},
    kinds::BuiltIn,
};
use crate::{
    error::Code,
    pb::envoy::{
        extensions::filters::{
            common::fault::v3::{FaultDelay as DelayMessage, fault_delay::FaultDelaySecifier},
            http::fault::v3::{FaultAbort as AbortMessage, HttpFault, fault_abort::ErrorType},
        },
        r#type::v3::FractionalPercent,
    },
    resource::{
        Context, Extension, Invalid, Payload,
        matcher::{Denominator, Fraction},
        parts, remarks, unexecuted,
    },
};

/// Settings of [`HttpFilterConfig::Fault`](crate::resource::http_filter::HttpFilterConfig::Fault). Which requests it is for is not limited
/// by headers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// Makes requests wait before they are sent.
    pub delay: Option<FaultDelay>,
    /// Makes requests fail without being sent.
    pub abort: Option<FaultAbort>,
    /// How many requests may be under a fault at a time in the whole process; `None` is without a limit.
    pub max_active_faults: Option<u32>,
}

/// How a [`Fault`] delays requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FaultDelay {
    /// For how long.
    #[serde(flatten)]
    pub kind: DelayKind,
    /// The part of the requests that are delayed; none by default. A header of the request may lower the numerator where
    /// headers control the fault.
    pub percentage: Fraction,
}

/// How long a [`FaultDelay`] is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DelayKind {
    /// Always the same. In JSON as seconds: `"1.5s"`.
    #[serde(serialize_with = "parts::serialize_seconds")]
    FixedDelay(Duration),
    /// As given in the header `x-envoy-fault-delay-request` of the request; without it there is no delay.
    HeaderDelay,
}

/// How a [`Fault`] makes requests fail.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FaultAbort {
    /// The status that requests fail with.
    #[serde(flatten)]
    pub kind: AbortKind,
    /// The part of the requests that fail; none by default. A header of the request may lower the numerator where headers
    /// control the fault.
    pub percentage: Fraction,
}

/// What a [`FaultAbort`] makes requests fail with.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AbortKind {
    /// An HTTP status; any number.
    HttpStatus(u32),
    /// A gRPC status. `OK` is as if the server had answered with success at once, without a message (A33-2).
    GrpcStatus(Code),
    /// As given in the header `x-envoy-fault-abort-request` or `x-envoy-fault-abort-grpc-request` of the
    /// request; without them it does not fail.
    HeaderAbort,
}

impl Extension for Fault {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.fault.v3.HTTPFault";

    /// Rule H2. What a fault cannot be is rejected as in gRPC's C core, which the text of the rule does not require.
    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let bytes = payload.message()?;
        let message = HttpFault::decode(bytes.clone())?;
        // A33-1: `headers`, `upstream_cluster` and `downstream_nodes` would limit the fault in Envoy; gRPC ignores them.
        remarks::scan(&unexecuted::HTTP_FAULT, &bytes);
        let delay = message.delay.map_or(Ok(None), FaultDelay::parse);
        let abort = message.abort.map_or(Ok(None), FaultAbort::parse);
        Ok(Self {
            delay: delay.map_err(|e| e.at("delay"))?,
            abort: abort.map_err(|e| e.at("abort"))?,
            max_active_faults: message.max_active_faults.map(|max| max.value),
        })
    }
}

impl HttpFilterExtension for Fault {
    // A39-3.
    const SIDES: Sides = Sides::Client;
    type Override = Self;
}

impl BuiltIn for Fault {
    type Effective = Self;

    fn effective(&self) -> Option<&Self> {
        Some(self)
    }

    fn overridden<'a>(&'a self, setting: &'a Self) -> Option<&'a Self> {
        Some(setting)
    }
}

impl FaultDelay {
    /// `None` for a delay without a duration.
    fn parse(message: DelayMessage) -> Result<Option<Self>, Invalid> {
        let percentage = percentage(message.percentage)?;
        let kind = match message.fault_delay_secifier {
            Some(FaultDelaySecifier::FixedDelay(delay)) => {
                DelayKind::FixedDelay(parts::duration(&delay).map_err(|e| e.at("fixed_delay"))?)
            }
            Some(FaultDelaySecifier::HeaderDelay(_)) => DelayKind::HeaderDelay,
            None => return Ok(None),
        };
        Ok(Some(Self { kind, percentage }))
    }
}

impl FaultAbort {
    /// `None` for a failure without a status.
    fn parse(message: AbortMessage) -> Result<Option<Self>, Invalid> {
        let percentage = percentage(message.percentage)?;
        let kind = match message.error_type {
            Some(ErrorType::HttpStatus(status)) => AbortKind::HttpStatus(status),
            Some(ErrorType::GrpcStatus(status)) => match i32::try_from(status) {
                Ok(number) if number <= Code::Unauthenticated as i32 => {
                    AbortKind::GrpcStatus(Code::from_i32(number))
                }
                Ok(_) | Err(_) => {
                    return Err(Invalid::field("grpc_status", format!("{status} is no known status")));
                }
            },
            Some(ErrorType::HeaderAbort(_)) => AbortKind::HeaderAbort,
            None => return Ok(None),
        };
        Ok(Some(Self { kind, percentage }))
    }
}

/// The share of the requests that a fault applies to.
// A33-3: the default is no request at all, unlike that of other fractions.
fn percentage(message: Option<FractionalPercent>) -> Result<Fraction, Invalid> {
    let none = Fraction::new(0, Denominator::Hundred);
    message.map_or(Ok(none), Fraction::parse).map_err(|e| e.at("percentage"))
}
