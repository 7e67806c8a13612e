use std::time::Duration;

use prost::Message;

use super::{duration, extension, message_builder, number};
use crate::pb::{
    envoy::{
        config::{
            common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation::Action},
            core::v3::{
                HeaderValue, HeaderValueOption, TypedExtensionConfig, header_value_option::HeaderAppendAction,
            },
        },
        extensions::filters::{
            common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier},
            http::{
                fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
                header_mutation::v3::{HeaderMutation, HeaderMutationPerRoute, Mutations},
                router::v3::Router,
                stateful_session::v3::StatefulSession,
            },
            network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::Any,
};

/// An HTTP filter of a listener, or the override of one for a route; see [`http_filter`].
#[derive(Debug, Clone, PartialEq)]
pub struct HttpFilterBuilder {
    /// The configuration of the filter for a listener.
    config: Any,
    /// The configuration as an override, if that has another message.
    overriding: Option<Any>,
}

/// The HTTP filters that channels execute.
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::control_plane::resources::{http_filter, listener, route};
///
/// let faults = http_filter::fault().delay(Duration::from_millis(5), 1_000_000).abort(14, 500_000); // UNAVAILABLE, 50 %
/// let tags = http_filter::header_mutation().set_request_header("x-tag", "blue");
/// let shop = listener("shop").http_filter("faults", faults).http_filter("tags", tags);
///
/// // None of these faults on one route:
/// let route = route::prefix("/health").cluster("shop").override_filter("faults", http_filter::fault());
/// ```
pub mod http_filter {
    use prost::Message;

    use super::{
        FaultBuilder, HeaderMutationBuilder, HttpFault, HttpFilterBuilder, Mutations, stateful_session,
    };
    use crate::pb::envoy::{
        extensions::http::stateful_session::cookie::v3::CookieBasedSessionState, r#type::http::v3::Cookie,
    };

    /// Fault injection (A33), at first without faults.
    pub fn fault() -> FaultBuilder {
        FaultBuilder { message: HttpFault::default() }
    }

    /// Changes of headers, at first none.
    pub fn header_mutation() -> HeaderMutationBuilder {
        HeaderMutationBuilder { message: Mutations::default() }
    }

    /// Sessions by a cookie of this name (A55).
    pub fn cookie_session(cookie: impl Into<String>) -> HttpFilterBuilder {
        let cookie = Cookie { name: cookie.into(), path: "/".to_owned(), ..Cookie::default() };
        stateful_session(&CookieBasedSessionState { cookie: Some(cookie) })
    }

    /// A filter by the full name of its message, such as one of the application.
    pub fn custom(type_name: &str, message: &impl Message) -> HttpFilterBuilder {
        HttpFilterBuilder::new(type_name, message)
    }
}

/// A builder of fault injection; see [`http_filter::fault`].
#[derive(Debug, Clone, PartialEq)]
pub struct FaultBuilder {
    /// The message so far.
    message: HttpFault,
}

/// A builder of changes of headers; see [`http_filter::header_mutation`].
#[derive(Debug, Clone, PartialEq)]
pub struct HeaderMutationBuilder {
    /// The message so far.
    message: Mutations,
}

impl FaultBuilder {
    /// Ends a fraction of the requests, in parts per million, with the number of a gRPC status code.
    #[must_use]
    pub fn abort(mut self, grpc_status: u32, per_million: u32) -> Self {
        self.message.abort = Some(FaultAbort {
            error_type: Some(ErrorType::GrpcStatus(grpc_status)),
            percentage: Some(fraction(per_million)),
        });
        self
    }

    /// Delays a fraction of the requests, in parts per million.
    #[must_use]
    pub fn delay(mut self, delay: Duration, per_million: u32) -> Self {
        self.message.delay = Some(FaultDelay {
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(delay))),
            percentage: Some(fraction(per_million)),
        });
        self
    }

    /// Limits the number of requests that are delayed or aborted at a time.
    #[must_use]
    pub fn max_active_faults(mut self, limit: u32) -> Self {
        self.message.max_active_faults = number(limit);
        self
    }
}

impl HeaderMutationBuilder {
    /// Sets a header of requests, in place of those of its name.
    #[must_use]
    pub fn set_request_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.message.request_mutations.push(set(name.into(), value.into()));
        self
    }

    /// Removes a header of requests.
    #[must_use]
    pub fn remove_request_header(mut self, name: impl Into<String>) -> Self {
        self.message.request_mutations.push(Mutation { action: Some(Action::Remove(name.into())) });
        self
    }

    /// Sets a header of responses, in place of those of its name.
    #[must_use]
    pub fn set_response_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.message.response_mutations.push(set(name.into(), value.into()));
        self
    }
}

impl HttpFilterBuilder {
    fn new(type_name: &str, message: &impl Message) -> Self {
        Self { config: extension(type_name, message), overriding: None }
    }

    /// The router, which ends the list of filters.
    pub(super) fn router() -> Self {
        Self::new("envoy.extensions.filters.http.router.v3.Router", &Router {})
    }

    /// The filter of a listener.
    pub(super) fn into_filter(self, name: String) -> HttpFilter {
        let config_type = Some(ConfigType::TypedConfig(self.config));
        HttpFilter { name, config_type, ..HttpFilter::default() }
    }

    /// The configuration for a route.
    pub(super) fn into_override(self) -> Any {
        self.overriding.unwrap_or(self.config)
    }
}

impl From<FaultBuilder> for HttpFilterBuilder {
    fn from(builder: FaultBuilder) -> Self {
        Self::new("envoy.extensions.filters.http.fault.v3.HTTPFault", &builder.message)
    }
}

impl From<HeaderMutationBuilder> for HttpFilterBuilder {
    fn from(builder: HeaderMutationBuilder) -> Self {
        let mutations = Some(builder.message);
        let per_route = HeaderMutationPerRoute { mutations: mutations.clone() };
        let message = HeaderMutation { mutations, ..HeaderMutation::default() };
        let type_name = |message: &str| format!("envoy.extensions.filters.http.header_mutation.v3.{message}");
        Self {
            overriding: Some(extension(&type_name("HeaderMutationPerRoute"), &per_route)),
            ..Self::new(&type_name("HeaderMutation"), &message)
        }
    }
}

message_builder!(FaultBuilder: HttpFault);
message_builder!(HeaderMutationBuilder: Mutations);

/// The filter for sessions, with their state in a cookie.
fn stateful_session(state: &impl Message) -> HttpFilterBuilder {
    const COOKIE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";
    let config =
        TypedExtensionConfig { name: COOKIE.to_owned(), typed_config: Some(extension(COOKIE, state)) };
    let filter = StatefulSession { session_state: Some(config), ..StatefulSession::default() };
    HttpFilterBuilder::new("envoy.extensions.filters.http.stateful_session.v3.StatefulSession", &filter)
}

/// Sets a header, in place of those of its name.
fn set(key: String, value: String) -> Mutation {
    let option = HeaderValueOption {
        header: Some(HeaderValue { key, value, ..HeaderValue::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    Mutation { action: Some(Action::Append(option)) }
}

fn fraction(per_million: u32) -> FractionalPercent {
    FractionalPercent { numerator: per_million, denominator: DenominatorType::Million.into() }
}
