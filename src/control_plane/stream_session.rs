//! The sessions of both variants of the protocol behind one type.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use prost::Message;
use tonic::Status;

use super::{
    message::{Request, Response, Variant},
    method::Method,
    session::{DeltaSession, Handled, Held, Misuse, NameChanges, Session, Settings},
    store::Store,
};
use crate::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

/// The session of a stream, of either variant. Types have their v3 type URLs.
#[derive(Debug)]
pub(super) enum StreamSession {
    /// State of the world.
    Sotw(Session),
    /// Incremental.
    Delta(DeltaSession),
}

impl StreamSession {
    /// A session that has received nothing.
    pub(super) fn new(variant: Variant, settings: Settings) -> Self {
        match variant {
            Variant::Sotw => Self::Sotw(Session::new(settings)),
            Variant::Delta => Self::Delta(DeltaSession::new(settings)),
        }
    }

    /// Handles a request that was received by a method.
    pub(super) fn handle_request(
        &mut self,
        message: Bytes,
        method: Method,
    ) -> Result<(Request, Handled), Status> {
        // The codes tell a client whether to repair its request, to do without the type, or to ask for less.
        let misused = |misuse: Misuse| match misuse {
            Misuse::NoTypeUrl => Status::invalid_argument(misuse.to_string()),
            Misuse::UnknownType => Status::unimplemented(misuse.to_string()),
            Misuse::TooManyNames { .. }
            | Misuse::TooManyVersions { .. }
            | Misuse::LongName { .. }
            | Misuse::TooManyTypes { .. }
            | Misuse::LargeNode { .. } => Status::resource_exhausted(misuse.to_string()),
        };
        match self {
            Self::Sotw(session) => {
                let mut request: DiscoveryRequest = decode(message, "DiscoveryRequest")?;
                request.type_url = method.type_of(&request.type_url)?.to_owned();
                let request = Arc::new(request);
                // The session takes a copy: observers get the whole request.
                let handled = session.handle_request((*request).clone()).map_err(misused)?;
                Ok((Request::Sotw(request), handled))
            }
            Self::Delta(session) => {
                let mut request: DeltaDiscoveryRequest = decode(message, "DeltaDiscoveryRequest")?;
                request.type_url = method.type_of(&request.type_url)?.to_owned();
                let request = Arc::new(request);
                // The session takes a copy: observers get the whole request.
                let handled = session.handle_request((*request).clone()).map_err(misused)?;
                Ok((Request::Delta(request), handled))
            }
        }
    }

    /// Tells the session the time; returns the time of the next call if no event occurs.
    pub(super) fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        match self {
            Self::Sotw(session) => session.handle_time(now, store),
            Self::Delta(session) => session.handle_time(now, store),
        }
    }

    /// Returns the next due response.
    pub(super) fn poll_response(&mut self, store: &Store) -> Option<Response> {
        match self {
            Self::Sotw(session) => session.poll_response(store).map(Response::from),
            Self::Delta(session) => session.poll_response(store).map(Response::from),
        }
    }

    /// Records a response that was sent outside of the session; returns whether it is of the stream's variant.
    pub(super) fn note_sent(&mut self, response: &Response) -> bool {
        match (self, response) {
            (Self::Sotw(session), Response::Sotw(response)) => session.note_sent(response),
            (Self::Delta(session), Response::Delta(response)) => session.note_sent(response),
            (Self::Sotw(_), Response::Delta(_)) | (Self::Delta(_), Response::Sotw(_)) => return false,
        }
        true
    }

    /// The changes of the subscribed names by the last request.
    pub(super) fn changes(&self) -> &NameChanges {
        match self {
            Self::Sotw(session) => session.changes(),
            Self::Delta(session) => session.changes(),
        }
    }

    /// Iterates over the subscribed types and names.
    pub(super) fn subscriptions(&self) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        match self {
            Self::Sotw(session) => Box::new(session.subscriptions()),
            Self::Delta(session) => Box::new(session.subscriptions()),
        }
    }

    /// Sets which responses are held back.
    pub(super) fn set_held(&mut self, held: Held) {
        match self {
            Self::Sotw(session) => session.set_held(held),
            Self::Delta(session) => session.set_held(held),
        }
    }
}

/// Decodes a request; `name` is that of the message.
fn decode<M: Message + Default>(message: Bytes, name: &str) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::invalid_argument(format!("not a {name}: {error}")))
}
