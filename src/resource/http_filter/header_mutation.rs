//! Changes of headers by configuration, Envoy's filter `header_mutation`.

use prost::Message;
use serde::Serialize;

use super::{
    extension::{HttpFilterExtension, Sides},
    kinds::BuiltIn,
};
use crate::{
    pb::envoy::{
        config::{
            common::mutation_rules::v3::{
                HeaderMutation as ActionMessage,
                header_mutation::{Action, RemoveOnMatch},
            },
            core::v3::{
                HeaderValue, HeaderValueOption,
                header_value_option::HeaderAppendAction::{
                    self, AddIfAbsent, AppendIfExistsOrAdd, OverwriteIfExists, OverwriteIfExistsOrAdd,
                },
            },
        },
        extensions::filters::http::header_mutation::v3 as pb,
    },
    resource::{
        Context, Extension, Invalid, Payload,
        matcher::StringMatcher,
        parts, remarks,
        unexecuted::{
            Entry::{Ignored, Inside},
            Table,
        },
    },
};

/// Settings of [`HttpFilterConfig::HeaderMutation`](crate::resource::http_filter::HttpFilterConfig::HeaderMutation).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMutation {
    /// The mutations on all routes, which precede those of the overrides.
    pub mutations: HeaderMutations,
    /// The order of the overrides of several levels, which are all executed: that of the split is the last one if set, and the
    /// first one otherwise.
    pub most_specific_header_mutations_wins: bool,
}

/// Mutations for a part of the routes, in addition to those of [`HeaderMutation`] and of the other levels.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMutationPerRoute {
    /// The mutations.
    pub mutations: HeaderMutations,
}

/// Changes of the headers of calls, each list in its order.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMutations {
    /// Changes of the headers of requests.
    pub request_mutations: Box<[HeaderAction]>,
    /// Changes of the headers of responses. Those of a response without messages are its trailers as well.
    pub response_mutations: Box<[HeaderAction]>,
    /// Changes of the trailers of responses.
    pub response_trailers_mutations: Box<[HeaderAction]>,
}

/// A change of headers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeaderAction {
    /// Adds or replaces a header.
    Append(HeaderAppend),
    /// Removes the headers with this name, in lower case.
    Remove(Box<str>),
    /// Removes the headers with matching names, but none that gRPC reserves. See [`HeaderAction::removes`].
    RemoveOnMatch(StringMatcher),
}

/// A header that is added or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeaderAppend {
    /// The name, in lower case.
    pub name: Box<str>,
    /// The value, which is valid in a header.
    pub value: Box<str>,
    /// What happens to a header of this name.
    pub append_action: AppendAction,
}

/// What happens to the headers of a name when one is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum AppendAction {
    /// The new one follows them.
    AppendIfExistsOrAdd,
    /// They stay, and the new one is added only if there are none.
    AddIfAbsent,
    /// The new one replaces them.
    OverwriteIfExistsOrAdd,
    /// The new one replaces them, and is added only if there are some.
    OverwriteIfExists,
}

impl Extension for HeaderMutation {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let bytes = payload.message()?;
        let message = pb::HeaderMutation::decode(bytes.clone())?;
        remarks::scan(&UNEXECUTED, &bytes);
        Ok(Self {
            mutations: HeaderMutations::parse(message.mutations)?,
            most_specific_header_mutations_wins: message.most_specific_header_mutations_wins,
        })
    }
}

impl HttpFilterExtension for HeaderMutation {
    const SIDES: Sides = Sides::Client;
    type Override = HeaderMutationPerRoute;
}

impl BuiltIn for HeaderMutation {
    type Effective = Self;

    fn effective(&self) -> Option<&Self> {
        Some(self)
    }

    /// An override replaces nothing: its mutations are executed beside these.
    fn overridden<'a>(&'a self, _: &'a HeaderMutationPerRoute) -> Option<&'a Self> {
        Some(self)
    }
}

impl Extension for HeaderMutationPerRoute {
    const TYPE_NAME: &'static str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let bytes = payload.message()?;
        let message = pb::HeaderMutationPerRoute::decode(bytes.clone())?;
        remarks::scan(&UNEXECUTED, &bytes);
        Ok(Self { mutations: HeaderMutations::parse(message.mutations)? })
    }
}

impl HeaderMutations {
    /// Parses the mutations; an unset message has none.
    fn parse(message: Option<pb::Mutations>) -> Result<Self, Invalid> {
        let message = message.unwrap_or_default();
        let parse = |field: &str, actions: Vec<ActionMessage>| {
            let actions = parts::each(field, actions, HeaderAction::parse).map_err(|e| e.at("mutations"))?;
            Ok::<_, Invalid>(actions.into_iter().flatten().collect())
        };
        Ok(Self {
            request_mutations: parse("request_mutations", message.request_mutations)?,
            response_mutations: parse("response_mutations", message.response_mutations)?,
            response_trailers_mutations: parse(
                "response_trailers_mutations",
                message.response_trailers_mutations,
            )?,
        })
    }
}

impl HeaderAction {
    /// `None` for a change that is never made: a header with an empty value, unless the empty value is kept.
    fn parse(message: ActionMessage) -> Result<Option<Self>, Invalid> {
        match message.action {
            Some(Action::Remove(name)) => {
                Ok(Some(Self::Remove(header_name(name).map_err(|e| e.at("remove"))?)))
            }
            Some(Action::Append(option)) => {
                let append = HeaderAppend::parse(option).map_err(|e| e.at("append"))?;
                Ok(append.map(Self::Append))
            }
            Some(Action::RemoveOnMatch(RemoveOnMatch { key_matcher })) => {
                let matcher = key_matcher.ok_or_else(|| Invalid::new("must be set"));
                let matcher = matcher.and_then(StringMatcher::parse);
                let matcher = matcher.map_err(|e| e.at("key_matcher").at("remove_on_match"))?;
                Ok(Some(Self::RemoveOnMatch(matcher)))
            }
            None => Err(Invalid::new("no action that is supported")),
        }
    }

    /// Whether the change removes headers with this name, in lower case. A matcher removes neither pseudo headers nor those that
    /// gRPC and its connections reserve, such as `te` and `grpc-status`.
    pub fn removes(&self, name: &str) -> bool {
        match self {
            Self::Append(_) => false,
            Self::Remove(removed) => **removed == *name,
            Self::RemoveOnMatch(matcher) => !is_reserved(name) && matcher.matches(name),
        }
    }
}

impl HeaderAppend {
    /// Parses an added header. `None` for one with an empty value that is not kept.
    fn parse(message: HeaderValueOption) -> Result<Option<Self>, Invalid> {
        let action = HeaderAppendAction::try_from(message.append_action);
        let action = action.map_err(|_| Invalid::field("append_action", "is not supported"))?;
        let append_action = match (message.append.map(|append| append.value), action) {
            (None | Some(true), AppendIfExistsOrAdd) => AppendAction::AppendIfExistsOrAdd,
            (Some(false), AppendIfExistsOrAdd) | (None, OverwriteIfExistsOrAdd) => {
                AppendAction::OverwriteIfExistsOrAdd
            }
            (None, AddIfAbsent) => AppendAction::AddIfAbsent,
            (None, OverwriteIfExists) => AppendAction::OverwriteIfExists,
            (Some(_), AddIfAbsent | OverwriteIfExistsOrAdd | OverwriteIfExists) => {
                return Err(Invalid::field("append", "must not be set beside append_action"));
            }
        };
        let header = message.header.ok_or_else(|| Invalid::field("header", "must be set"))?;
        let HeaderValue { key, value, raw_value } = header;
        let name = header_name(key).map_err(|e| e.at("key").at("header"))?;
        let value = match (value.is_empty(), raw_value.is_empty()) {
            (false, false) => Err(Invalid::field("raw_value", "must not be set beside value")),
            (true, false) => literal(&raw_value).map_err(|e| e.at("raw_value")),
            (_, true) => unformatted(&value).map_err(|e| e.at("value")),
        };
        let value = value.map_err(|e| e.at("header"))?;
        // Peers fail calls with binary metadata that they cannot decode.
        if name.ends_with("-bin") && !value.bytes().all(is_base64) {
            return Err(
                Invalid::field("value", "must be base64, as that of all metadata in \"-bin\"").at("header")
            );
        }
        if value.is_empty() && !message.keep_empty_value {
            return Ok(None);
        }
        Ok(Some(Self { name, value, append_action }))
    }
}

/// Parses the name of a header that may be changed.
fn header_name(name: String) -> Result<Box<str>, Invalid> {
    let name = name.to_ascii_lowercase();
    if name.is_empty() || name.len() > MAX_LENGTH {
        return Err(Invalid::new(format!("must have 1 to {MAX_LENGTH} bytes")));
    }
    if is_reserved(&name) {
        return Err(Invalid::new(format!("the header {name:?} is reserved")));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match name.bytes().all(is_token) {
        true => Ok(name.into()),
        false => Err(Invalid::new(format!("{name:?} is not the name of a header"))),
    }
}

/// Returns the value of a format string without commands: a percent sign is written twice. Channels format nothing, and a command
/// that was sent as it is written would be another value than the configured one.
fn unformatted(format: &str) -> Result<Box<str>, Invalid> {
    let literals = format.replace("%%", "");
    if literals.contains('%') {
        return Err(Invalid::new("command operators (%…%) are not supported"));
    }
    literal(format.replace("%%", "%").as_bytes())
}

/// Parses the value of a header.
fn literal(value: &[u8]) -> Result<Box<str>, Invalid> {
    if value.len() > MAX_LENGTH {
        return Err(Invalid::new(format!("must have at most {MAX_LENGTH} bytes")));
    }
    let is_visible = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    match str::from_utf8(value) {
        Ok(text) if value.iter().all(is_visible) => Ok(text.into()),
        _ => Err(Invalid::new("is not the value of a header in UTF-8")),
    }
}

/// Whether a byte may be in binary metadata, of which a header may have several values with commas between them.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=,".contains(&byte)
}

/// Whether a header is set by gRPC, HTTP/2 or the connection, and not to be changed.
fn is_reserved(name: &str) -> bool {
    name.starts_with(':') || name.starts_with("grpc-") || RESERVED.contains(&name)
}

/// The headers beside pseudo headers and those of gRPC that are not to be changed.
const RESERVED: [&str; 11] = [
    "host",
    "te",
    "content-type",
    "content-length",
    "user-agent",
    "connection",
    "proxy-connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
];
/// The length of a name, and of a value, in bytes, as Envoy limits them.
const MAX_LENGTH: usize = 16_384;

/// The fields of both messages that a channel does not execute.
pub(in crate::resource) static UNEXECUTED: Table = Table(&[(1, Inside(&MUTATIONS))]);
/// The fields of `Mutations` that a channel does not execute.
static MUTATIONS: Table = Table(&[
    (3, Ignored("Mutations.query_parameter_mutations")),
    (5, Ignored("Mutations.request_trailers_mutations")),
]);
