//! Requests that an external service must permit (A92).

use prost::Message;
use serde::Serialize;

use super::{
    HeaderForwardingRules, HeaderMutationRules,
    extension::{HttpFilterExtension, Sides},
};
use crate::{
    pb::envoy::extensions::filters::http::ext_authz::v3::{
        self as pb, ext_authz::Services, ext_authz_per_route::Override,
    },
    resource::{
        Context, Extension, Invalid, Payload,
        grpc_service::GrpcService,
        matcher::{Denominator, Fraction},
    },
};

/// Has an external service authorize requests (A92).
///
/// It is not known by itself: an application that calls the service registers it,
/// `Registry::new().with_http_filter::<ExtAuthz>()`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExtAuthz {
    /// The service.
    pub grpc_service: GrpcService,
    /// The fraction of requests that are checked; all by default.
    pub filter_enabled: Fraction,
    /// Whether the other requests fail instead of passing.
    pub deny_at_disable: bool,
    /// Whether requests pass if the service is unreachable.
    pub failure_mode_allow: bool,
    /// Whether such requests get the header `x-envoy-auth-failure-mode-allowed: true`.
    pub failure_mode_allow_header_add: bool,
    /// The HTTP status of requests that fail because the service is unreachable; 403 by default.
    pub status_on_error: u32,
    /// Whether the certificate of the peer is sent to the service.
    pub include_peer_certificate: bool,
    /// Which headers are sent to the service.
    pub forward_rules: HeaderForwardingRules,
    /// Which headers the service may change.
    pub mutation_rules: HeaderMutationRules,
}

/// Changes an [`ExtAuthz`] for a part of the routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExtAuthzPerRoute {
    /// Whether the filter does nothing there.
    pub disabled: bool,
}

impl Extension for ExtAuthz {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz";

    /// Rule H12.
    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::ExtAuthz::decode(payload.message()?)?;
        let Some(Services::GrpcService(service)) = message.services else {
            return Err(Invalid::field("grpc_service", "must be set"));
        };
        let service = GrpcService::parse(service, cx).map_err(|e| e.at("grpc_service"))?;
        let unset = || Invalid::field("default_value", "must be set");
        let enabled = message
            .filter_enabled
            .map_or(Ok(ALL), |enabled| Fraction::parse_default(enabled)?.ok_or_else(unset));
        let deny = message
            .deny_at_disable
            .map_or(Ok(false), |deny| deny.default_value.map(|deny| deny.value).ok_or_else(unset));
        let mutation = HeaderMutationRules::parse(message.decoder_header_mutation_rules.unwrap_or_default());
        Ok(Self {
            grpc_service: service,
            filter_enabled: enabled.map_err(|e| e.at("filter_enabled"))?,
            deny_at_disable: deny.map_err(|e| e.at("deny_at_disable"))?,
            failure_mode_allow: message.failure_mode_allow,
            failure_mode_allow_header_add: message.failure_mode_allow_header_add,
            status_on_error: match message.status_on_error.map_or(0, |status| status.code) {
                0 => FORBIDDEN,
                code => u32::try_from(code).map_err(|_| {
                    Invalid::field("status_on_error.code", format!("{code} is no HTTP status"))
                })?,
            },
            include_peer_certificate: message.include_peer_certificate,
            forward_rules: HeaderForwardingRules::of(message.allowed_headers, message.disallowed_headers)?,
            mutation_rules: mutation.map_err(|e| e.at("decoder_header_mutation_rules"))?,
        })
    }
}

impl HttpFilterExtension for ExtAuthz {
    const SIDES: Sides = Sides::Both;
    type Override = ExtAuthzPerRoute;
}

impl Extension for ExtAuthzPerRoute {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute";

    /// The settings beside `disabled` are for proxies alone and skipped.
    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::ExtAuthzPerRoute::decode(payload.message()?)?;
        match message.r#override {
            Some(Override::Disabled(disabled)) => Ok(Self { disabled }),
            None => Ok(Self { disabled: false }),
        }
    }
}

/// The default of `filter_enabled`.
const ALL: Fraction = Fraction::new(100, Denominator::Hundred);
/// The default of `status_on_error`.
const FORBIDDEN: u32 = 403;
