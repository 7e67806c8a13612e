//! Requests that an external service processes (A93).

use std::time::Duration;

use prost::Message;
use serde::Serialize;

use super::{
    HeaderForwardingRules, HeaderMutationRules,
    extension::{HttpFilterExtension, Sides},
};
use crate::{
    pb::envoy::extensions::filters::http::ext_proc::v3::{
        self as pb,
        ext_proc_per_route::Override,
        processing_mode::{BodySendMode, HeaderSendMode},
    },
    resource::{Context, Extension, Invalid, Payload, grpc_service::GrpcService, parts},
};

/// Sends the requests of a client to an external service, which may change them (A93).
///
/// It is not known by itself: an application that calls the service registers it,
/// `Registry::new().with_http_filter::<ExtProc>()`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExtProc {
    /// The service.
    pub grpc_service: GrpcService,
    /// Whether requests continue unchanged if the service is unreachable.
    pub failure_mode_allow: bool,
    /// The parts of a request that are sent to the service.
    pub processing_mode: ProcessingMode,
    /// Names of attributes of the request that are sent to the service.
    pub request_attributes: Box<[Box<str>]>,
    /// Names of attributes of the response that are sent to the service.
    pub response_attributes: Box<[Box<str>]>,
    /// Which headers the service may change.
    pub mutation_rules: HeaderMutationRules,
    /// Which headers are sent to the service.
    pub forward_rules: HeaderForwardingRules,
    /// Whether the service may not answer in place of the server.
    pub disable_immediate_response: bool,
    /// Whether the responses of the service are not awaited, and ignored.
    pub observability_mode: bool,
    /// How long the stream to the service stays open after a request in observability mode: more than 0, 5 s by default.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub deferred_close_timeout: Duration,
}

/// The parts of a request that are sent to the service of an [`ExtProc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessingMode {
    /// The headers; sent by default.
    pub request_headers: bool,
    /// The messages; not sent by default.
    pub request_body: bool,
    /// The headers of the response; sent by default.
    pub response_headers: bool,
    /// The messages of the response; not sent by default, and only together with the trailers.
    pub response_body: bool,
    /// The trailers; not sent by default.
    pub response_trailers: bool,
}

/// Changes an [`ExtProc`] for a part of the routes: what is `None` or empty stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExtProcPerRoute {
    /// Whether the filter does nothing there.
    pub disabled: bool,
    /// The service in place of that of the filter.
    pub grpc_service: Option<GrpcService>,
    /// The parts of a request that are sent to it.
    pub processing_mode: Option<ProcessingMode>,
    /// Whether requests continue unchanged if it is unreachable.
    pub failure_mode_allow: Option<bool>,
    /// Names of attributes of the request that are sent to it.
    pub request_attributes: Box<[Box<str>]>,
    /// Names of attributes of the response that are sent to it.
    pub response_attributes: Box<[Box<str>]>,
}

impl Extension for ExtProc {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";

    /// Rule H11.
    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::ExternalProcessor::decode(payload.message()?)?;
        let service = message.grpc_service.ok_or_else(|| Invalid::field("grpc_service", "must be set"))?;
        let mode = message.processing_mode.ok_or_else(|| Invalid::field("processing_mode", "must be set"))?;
        let close = message.deferred_close_timeout.as_ref().map_or(Ok(CLOSE_TIMEOUT), parts::positive);
        let mutation = HeaderMutationRules::parse(message.mutation_rules.unwrap_or_default());
        let forward = HeaderForwardingRules::parse(message.forward_rules.unwrap_or_default());
        Ok(Self {
            grpc_service: GrpcService::parse(service, cx).map_err(|e| e.at("grpc_service"))?,
            failure_mode_allow: message.failure_mode_allow,
            processing_mode: ProcessingMode::parse(&mode).map_err(|e| e.at("processing_mode"))?,
            request_attributes: names(message.request_attributes),
            response_attributes: names(message.response_attributes),
            mutation_rules: mutation.map_err(|e| e.at("mutation_rules"))?,
            forward_rules: forward.map_err(|e| e.at("forward_rules"))?,
            disable_immediate_response: message.disable_immediate_response,
            observability_mode: message.observability_mode,
            deferred_close_timeout: close.map_err(|e| e.at("deferred_close_timeout"))?,
        })
    }
}

impl HttpFilterExtension for ExtProc {
    const SIDES: Sides = Sides::Client;
    type Override = ExtProcPerRoute;
}

impl ExtProc {
    /// The settings where an override is looked at too; `None` if the filter does nothing there.
    pub fn overridden(&self, by: Option<&ExtProcPerRoute>) -> Option<Self> {
        let Some(by) = by else { return Some(self.clone()) };
        let or = |new: &[Box<str>], old: &[Box<str>]| Box::from(if new.is_empty() { old } else { new });
        (!by.disabled).then(|| Self {
            grpc_service: by.grpc_service.clone().unwrap_or_else(|| self.grpc_service.clone()),
            failure_mode_allow: by.failure_mode_allow.unwrap_or(self.failure_mode_allow),
            processing_mode: by.processing_mode.unwrap_or(self.processing_mode),
            request_attributes: or(&by.request_attributes, &self.request_attributes),
            response_attributes: or(&by.response_attributes, &self.response_attributes),
            ..self.clone()
        })
    }
}

impl ProcessingMode {
    /// Rule H11. A mode that is unset has the message's default, as in Envoy.
    fn parse(message: &pb::ProcessingMode) -> Result<Self, Invalid> {
        let parsed = Self {
            request_headers: sends("request_header_mode", message.request_header_mode, true)?,
            request_body: sends_body("request_body_mode", message.request_body_mode)?,
            response_headers: sends("response_header_mode", message.response_header_mode, true)?,
            response_body: sends_body("response_body_mode", message.response_body_mode)?,
            response_trailers: sends("response_trailer_mode", message.response_trailer_mode, false)?,
        };
        if parsed.response_body && !parsed.response_trailers {
            let reason = "must be SEND, since response_body_mode is GRPC";
            return Err(Invalid::field("response_trailer_mode", reason));
        }
        Ok(parsed)
    }
}

impl Extension for ExtProcPerRoute {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute";

    /// Rule H11.
    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::ExtProcPerRoute::decode(payload.message()?)?;
        match message.r#override {
            Some(Override::Overrides(overrides)) => {
                Self::parse_overrides(overrides, cx).map_err(|e| e.at("overrides"))
            }
            Some(Override::Disabled(disabled)) => Ok(Self { disabled, ..Self::default() }),
            None => Ok(Self::default()),
        }
    }
}

impl ExtProcPerRoute {
    /// Parses the settings that differ from those of the filter.
    fn parse_overrides(message: pb::ExtProcOverrides, cx: &Context<'_>) -> Result<Self, Invalid> {
        let service = message.grpc_service.map(|service| GrpcService::parse(service, cx)).transpose();
        let mode = message.processing_mode.as_ref().map(ProcessingMode::parse).transpose();
        Ok(Self {
            disabled: false,
            grpc_service: service.map_err(|e| e.at("grpc_service"))?,
            processing_mode: mode.map_err(|e| e.at("processing_mode"))?,
            failure_mode_allow: message.failure_mode_allow.map(|allow| allow.value),
            request_attributes: names(message.request_attributes),
            response_attributes: names(message.response_attributes),
        })
    }
}

/// Whether headers or trailers are sent, by the number of a `HeaderSendMode`.
fn sends(field: &str, mode: i32, default: bool) -> Result<bool, Invalid> {
    match HeaderSendMode::try_from(mode) {
        Ok(HeaderSendMode::Default) => Ok(default),
        Ok(HeaderSendMode::Send) => Ok(true),
        Ok(HeaderSendMode::Skip) => Ok(false),
        Err(_) => Err(Invalid::field(field, format!("{mode} is no known mode"))),
    }
}

/// Whether messages are sent, by the number of a `BodySendMode`. The modes of proxies are errors.
fn sends_body(field: &str, mode: i32) -> Result<bool, Invalid> {
    match BodySendMode::try_from(mode) {
        Ok(BodySendMode::None) => Ok(false),
        Ok(BodySendMode::Grpc) => Ok(true),
        Err(_) => Err(Invalid::field(field, format!("must be NONE or GRPC, is {mode}"))),
    }
}

fn names(names: Vec<String>) -> Box<[Box<str>]> {
    names.into_iter().map(Into::into).collect()
}

/// The default of `deferred_close_timeout`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
