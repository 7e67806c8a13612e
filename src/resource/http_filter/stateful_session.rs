//! Sessions that stay on one endpoint (A55).

use std::time::Duration;

use prost::Message;
use serde::Serialize;

use super::{
    extension::{HttpFilterExtension, Sides},
    kinds::BuiltIn,
};
use crate::{
    pb::envoy::extensions::{
        filters::http::stateful_session::v3::{self as pb, stateful_session_per_route::Override},
        http::stateful_session::cookie::v3::CookieBasedSessionState,
    },
    resource::{Context, Extension, Invalid, Payload, parts, remarks, unexecuted},
};

/// Settings of [`HttpFilterConfig::StatefulSession`](crate::resource::http_filter::HttpFilterConfig::StatefulSession).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StatefulSession {
    /// What holds the endpoint of a session; `None` keeps no sessions.
    pub cookie: Option<SessionCookie>,
}

/// The cookie that holds the endpoint of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionCookie {
    /// Its name, not empty.
    pub name: Box<str>,
    /// The paths of requests that it is for begin with this one; `/` by default.
    pub path: Box<str>,
    /// How long it lives; 0, the default, is as long as the client lives. In JSON as seconds: `"1.5s"`.
    #[serde(serialize_with = "parts::serialize_seconds")]
    pub ttl: Duration,
}

/// Replaces [`StatefulSession`] for a part of the routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StatefulSessionPerRoute {
    /// The new settings; `None` keeps no sessions there.
    pub session: Option<StatefulSession>,
}

impl Extension for StatefulSession {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Self::parse_message(pb::StatefulSession::decode(payload.message()?)?)
    }
}

impl HttpFilterExtension for StatefulSession {
    const SIDES: Sides = Sides::Client;
    type Override = StatefulSessionPerRoute;
}

impl BuiltIn for StatefulSession {
    type Effective = SessionCookie;

    fn effective(&self) -> Option<&SessionCookie> {
        self.cookie.as_ref()
    }

    fn overridden<'a>(&'a self, setting: &'a StatefulSessionPerRoute) -> Option<&'a SessionCookie> {
        setting.session.as_ref()?.cookie.as_ref()
    }
}

impl StatefulSession {
    /// Rule A55-2.
    fn parse_message(message: pb::StatefulSession) -> Result<Self, Invalid> {
        // A55-2: the absence of a state means no sessions; a state of an unknown type is an error, as it cannot be optional.
        let Some(state) = message.session_state else { return Ok(Self { cookie: None }) };
        let cookie = match state.typed_config {
            Some(any) => match parts::extension(&any) {
                Ok((name, payload)) if name == COOKIE_STATE => SessionCookie::parse(payload),
                Ok((name, Payload::Message(_) | Payload::Struct(_))) => {
                    Err(Invalid::new(format!("session state of type {name:?} is not supported")))
                }
                Err(e) => Err(e),
            },
            None => Err(Invalid::new("must be set")),
        };
        Ok(Self { cookie: Some(cookie.map_err(|e| e.at("typed_config").at("session_state"))?) })
    }
}

impl SessionCookie {
    /// Parses the state of a session in a cookie.
    fn parse(payload: Payload) -> Result<Self, Invalid> {
        let bytes = payload.message()?;
        let state = CookieBasedSessionState::decode(bytes.clone())?;
        remarks::scan(&unexecuted::COOKIE_SESSION, &bytes);
        let cookie = state.cookie.ok_or_else(|| Invalid::field("cookie", "must be set"))?;
        if cookie.name.is_empty() {
            return Err(Invalid::field("cookie.name", "must not be empty"));
        }
        let ttl = cookie.ttl.as_ref().map_or(Ok(Duration::ZERO), parts::duration);
        let path = if cookie.path.is_empty() { "/".into() } else { cookie.path.into() };
        Ok(Self { name: cookie.name.into(), path, ttl: ttl.map_err(|e| e.at("ttl").at("cookie"))? })
    }

    /// Whether the cookie is for requests to a path: the cookie's own, or one below it (A55).
    ///
    /// A query that the path ends with (`?…`) is not looked at.
    pub fn is_for(&self, path: &str) -> bool {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        match path.strip_prefix(&*self.path) {
            // Whole segments: `/a` is for `/a/b`, but not for `/ab`.
            Some(rest) => rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'),
            None => false,
        }
    }
}

impl Extension for StatefulSessionPerRoute {
    const TYPE_NAME: &'static str =
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::StatefulSessionPerRoute::decode(payload.message()?)?;
        let session = match message.r#override {
            Some(Override::StatefulSession(session)) => {
                let session = StatefulSession::parse_message(session);
                Some(session.map_err(|e| e.at("stateful_session"))?)
            }
            Some(Override::Disabled(_)) | None => None,
        };
        Ok(Self { session })
    }
}

/// The only supported state of a session (A55).
const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";
