//! The messages on a stream, and the server's side of it, in either variant of the protocol.

use std::{collections::BTreeSet, time::Instant};

use bytes::Bytes;
use prost::Message;

use crate::{
    control_plane::{
        DeltaSession, Session, Store,
        session::{
            Behavior, Held, Misuse, Settings,
            response_rules::{Leeway, ResponseRules},
        },
    },
    pb::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
            ResourceError,
        },
        google::{protobuf::Any, rpc::Status},
    },
    wire,
};

/// The server's side of a stream, whose responses are read independently.
pub(super) struct ServerSession {
    side: Side,
    rules: ResponseRules,
}

enum Side {
    Sotw(Session),
    Delta(DeltaSession),
}

/// A message of the client.
pub(super) enum Request {
    Sotw(DiscoveryRequest),
    Delta(DeltaDiscoveryRequest),
}

/// A message of the server.
#[derive(Debug, Clone)]
pub(super) enum Response {
    Sotw(DiscoveryResponse),
    Delta(DeltaDiscoveryResponse),
}

impl ServerSession {
    /// The session of a stream whose client had another one `before`.
    pub(super) fn new(delta: bool, settings: Settings, before: Option<&Self>) -> Self {
        // Such servers leave out and repeat resources in ways that the rules of contents would take for defects.
        let form_only = settings.behavior != Behavior::default() || settings.ignore_initial_versions;
        let rules = ResponseRules::new(Leeway { form_only, ..Leeway::default() });
        let side = match before.map(|before| &before.side) {
            _ if delta => Side::Delta(DeltaSession::new(settings)),
            Some(Side::Sotw(before)) => Side::Sotw(Session::resume(settings, before)),
            Some(Side::Delta(_)) | None => Side::Sotw(Session::new(settings)),
        };
        Self { side, rules }
    }

    pub(super) fn is_delta(&self) -> bool {
        match &self.side {
            Side::Sotw(_) => false,
            Side::Delta(_) => true,
        }
    }

    pub(super) fn read_request(&self, bytes: Bytes) -> Request {
        match &self.side {
            Side::Sotw(_) => DiscoveryRequest::decode(bytes).map(Request::Sotw),
            Side::Delta(_) => DeltaDiscoveryRequest::decode(bytes).map(Request::Delta),
        }
        .expect("the client writes requests")
    }

    pub(super) fn read_response(&self, bytes: &[u8]) -> Option<Response> {
        match &self.side {
            Side::Sotw(_) => DiscoveryResponse::decode(bytes).ok().map(Response::Sotw),
            Side::Delta(_) => DeltaDiscoveryResponse::decode(bytes).ok().map(Response::Delta),
        }
    }

    /// Fails when the server ends the stream.
    pub(super) fn handle_request(&mut self, request: Request) -> Result<(), Misuse> {
        let handled = match (&mut self.side, request) {
            (Side::Sotw(session), Request::Sotw(request)) => {
                self.rules.on_sotw_request(&request);
                session.handle_request(request)
            }
            (Side::Delta(session), Request::Delta(request)) => {
                self.rules.on_delta_request(&request);
                session.handle_request(request)
            }
            (Side::Sotw(_), Request::Delta(_)) | (Side::Delta(_), Request::Sotw(_)) => {
                unreachable!("it was read by this variant")
            }
        };
        // Other misuse is a freedom of the server, which ends the stream for a type that it does not know.
        assert_ne!(handled, Err(Misuse::NoTypeUrl), "the client keeps to the protocol");
        handled.map(drop)
    }

    /// When the server has something to do by the clock.
    pub(super) fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        match &mut self.side {
            Side::Sotw(session) => session.handle_time(now, store),
            Side::Delta(session) => session.handle_time(now, store),
        }
    }

    pub(super) fn poll_response(&mut self, store: &Store) -> Option<Response> {
        let response = match &mut self.side {
            Side::Sotw(session) => session.poll_response(store).map(Response::Sotw),
            Side::Delta(session) => session.poll_response(store).map(Response::Delta),
        }?;
        let read = match &response {
            Response::Sotw(response) => self.rules.on_sotw_response(response),
            Response::Delta(response) => self.rules.on_delta_response(response),
        };
        assert_eq!(read, Ok(()), "the server keeps to the protocol: {response:?}");
        Some(response)
    }

    /// Whether a response of a type is not answered yet.
    #[cfg(test)]
    pub(super) fn is_awaiting(&self, type_url: &str) -> bool {
        match &self.side {
            Side::Sotw(session) => session.is_awaiting(type_url),
            Side::Delta(session) => session.is_awaiting(type_url),
        }
    }

    pub(super) fn note_sent(&mut self, response: &Response) {
        self.rules.note_sent(response.type_url(), response.nonce());
        match (&mut self.side, response) {
            (Side::Sotw(session), Response::Sotw(response)) => session.note_sent(response),
            (Side::Delta(session), Response::Delta(response)) => session.note_sent(response),
            (Side::Sotw(_), Response::Delta(_)) | (Side::Delta(_), Response::Sotw(_)) => {
                unreachable!("it was made for this variant")
            }
        }
    }

    pub(super) fn set_held(&mut self, held: Held) {
        match &mut self.side {
            Side::Sotw(session) => session.set_held(held),
            Side::Delta(session) => session.set_held(held),
        }
    }

    pub(super) fn subscribed(&self, type_url: &str) -> Vec<&str> {
        match &self.side {
            Side::Sotw(session) => session.subscribed(type_url),
            Side::Delta(session) => session.subscribed(type_url),
        }
    }

    /// A response that the session did not make.
    pub(super) fn response(
        &self,
        (type_url, nonce): (String, String),
        resources: Vec<(String, Any)>,
        resource_errors: Vec<ResourceError>,
    ) -> Response {
        match &self.side {
            Side::Sotw(_) => Response::Sotw(DiscoveryResponse {
                version_info: nonce.clone(),
                nonce,
                type_url,
                resources: resources.into_iter().map(|(_, any)| any).collect(),
                resource_errors,
                ..DiscoveryResponse::default()
            }),
            Side::Delta(_) => {
                let resource = |(name, any)| Resource {
                    name,
                    version: nonce.clone(),
                    resource: Some(any),
                    ..Resource::default()
                };
                Response::Delta(DeltaDiscoveryResponse {
                    resources: resources.into_iter().map(resource).collect(),
                    nonce,
                    type_url,
                    resource_errors,
                    ..DeltaDiscoveryResponse::default()
                })
            }
        }
    }
}

impl Request {
    pub(super) fn type_url(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.type_url,
            Self::Delta(request) => &request.type_url,
        }
    }

    /// The requested names.
    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Sotw(request) => &request.resource_names,
            Self::Delta(request) => &request.resource_names_subscribe,
        }
    }

    pub(super) fn nonce(&self) -> &str {
        match self {
            Self::Sotw(request) => &request.response_nonce,
            Self::Delta(request) => &request.response_nonce,
        }
    }

    pub(super) fn has_node(&self) -> bool {
        match self {
            Self::Sotw(request) => request.node.is_some(),
            Self::Delta(request) => request.node.is_some(),
        }
    }

    pub(super) fn error(&self) -> Option<&Status> {
        match self {
            Self::Sotw(request) => request.error_detail.as_ref(),
            Self::Delta(request) => request.error_detail.as_ref(),
        }
    }

    /// What holds for each request of the incremental variant, the `first` one of a type on its stream or a later one.
    pub(super) fn check(&self, first: bool) {
        let Self::Delta(request) = self else { return };
        let leaving: BTreeSet<_> = request.resource_names_unsubscribe.iter().collect();
        let both = request.resource_names_subscribe.iter().find(|name| leaving.contains(name));
        assert_eq!(both, None, "B2.9: it is in both lists");
        let requested: BTreeSet<_> = request.resource_names_subscribe.iter().collect();
        assert_eq!(requested.len(), request.resource_names_subscribe.len(), "each name once");
        assert!(!first || leaving.is_empty(), "B2.1: there is nothing to unsubscribe yet");
        assert!(
            first || request.initial_resource_versions.is_empty(),
            "B2.2: initial versions are sent once"
        );
    }
}

impl Response {
    pub(super) fn type_url(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    pub(super) fn nonce(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.nonce,
            Self::Delta(response) => &response.nonce,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Sotw(response) => response.encode_to_vec(),
            Self::Delta(response) => response.encode_to_vec(),
        }
    }

    /// The entry of each resource.
    pub(super) fn resources(&self) -> Vec<Resource> {
        match self {
            Self::Sotw(response) => response.resources.iter().map(unwrap).collect(),
            Self::Delta(response) => response.resources.clone(),
        }
    }

    /// The names of the removed resources, in the incremental variant.
    #[cfg(test)]
    pub(super) fn removed(&self) -> &[String] {
        match self {
            Self::Sotw(_) => &[],
            Self::Delta(response) => &response.removed_resources,
        }
    }

    /// The names of the resources in it, heartbeats left out.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.with_messages().map(|(name, _)| name)
    }

    /// The names of the resources in it that are valid.
    pub(super) fn good_names(&self) -> impl Iterator<Item = String> {
        self.with_messages().filter(|(_, message)| !is_bad(message)).map(|(name, _)| name)
    }

    /// The resources in it, whatever the order.
    pub(super) fn content(&self) -> Vec<Bytes> {
        let mut content: Vec<_> = self.with_messages().map(|(_, message)| message).collect();
        content.sort_unstable();
        content
    }

    /// The version, or in the incremental variant those of all resources.
    pub(super) fn version(&self) -> String {
        match self {
            Self::Sotw(response) => response.version_info.clone(),
            Self::Delta(response) => {
                let versions: BTreeSet<_> =
                    response.resources.iter().map(|it| (&it.name, &it.version)).collect();
                format!("{} {versions:?}", response.system_version_info)
            }
        }
    }

    /// Whether one of its resources is invalid.
    pub(super) fn has_bad(&self) -> bool {
        self.with_messages().any(|(_, message)| is_bad(&message))
    }

    /// The resources that are no heartbeats, with the names in their messages.
    fn with_messages(&self) -> impl Iterator<Item = (String, Bytes)> {
        let messages = self.resources().into_iter().filter_map(|it| it.resource.map(|any| any.value));
        messages.filter_map(|it| Some((wire::string_field(&it, 1).ok()?.to_owned(), it)))
    }
}

/// A resource of the state of the world, whether it is wrapped or not.
fn unwrap(any: &Any) -> Resource {
    if any.type_url.ends_with(WRAPPER) {
        return Resource::decode(any.value.clone()).expect("the server wraps resources");
    }
    let name = wire::string_field(&any.value, 1).unwrap_or_default().to_owned();
    Resource { name, resource: Some(any.clone()), ..Resource::default() }
}

fn is_bad(message: &[u8]) -> bool {
    wire::string_field(message, 2) == Ok("bad")
}

/// The type of the message that a resource with a time to live is in (C1.1).
const WRAPPER: &str = "/envoy.service.discovery.v3.Resource";
