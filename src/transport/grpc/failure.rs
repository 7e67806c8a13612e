use std::error::Error;

use tonic::Status;

use crate::{
    config::ServerUri,
    error::Code,
    transport::{Disconnect, DisconnectKind},
};

/// How a stream ended, if it did not end well.
#[derive(Debug)]
pub(super) struct Failure<'a> {
    uri: &'a ServerUri,
    status: Status,
    limit: usize,
}

/// The server ended the stream without an error.
pub(super) fn closed(uri: &ServerUri) -> Disconnect {
    Disconnect::new(DisconnectKind::Closed, format!("{uri} ended the stream"))
}

/// An error with all of its causes: `client error: connection refused (os error 111)`.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

impl<'a> Failure<'a> {
    pub(super) fn new(uri: &'a ServerUri, status: Status, limit: usize) -> Self {
        Self { uri, status, limit }
    }

    /// Whether the connection itself may have failed, and knows better why.
    pub(super) fn may_be_the_connections(&self) -> bool {
        self.status.source().is_some() && self.reset().is_none()
    }

    /// `end` is how the connection ended, if it has.
    pub(super) fn into_disconnect(self, end: Option<&hyper::Error>) -> Disconnect {
        let uri = self.uri;
        if let Some(end) = end
            && is_too_many_pings(end)
        {
            let message = format!("{uri} closed the connection: {}", with_causes(end));
            return Disconnect::new(DisconnectKind::TooManyPings, message);
        }
        if let Some(size) = self.too_large() {
            let limit = self.limit;
            let message = format!(
                "{uri} sent a message of {size} bytes, more than the limit of {limit} bytes (max_message_size)"
            );
            return Disconnect::new(DisconnectKind::TooLarge { limit }, message);
        }
        let Some(source) = self.status.source() else {
            let code = Code::from_i32(self.status.code() as i32);
            let message = format!("{uri} ended the stream: {code}: {}", self.status.message());
            return Disconnect::new(DisconnectKind::Failed(code), message);
        };
        if let Some(reset) = self.reset() {
            let message = format!("{uri} reset the stream: {}", with_causes(source));
            return Disconnect::new(DisconnectKind::Failed(code_of(reset)), message);
        }
        let why = end.map_or_else(|| with_causes(source), |end| with_causes(end));
        let message = format!("the connection to {uri} broke: {why}");
        Disconnect::new(DisconnectKind::Failed(Code::Unavailable), message)
    }

    /// The reason of HTTP/2 if it was the stream that was reset, and not the connection.
    fn reset(&self) -> Option<h2::Reason> {
        let error = h2_error(self.status.source()?)?;
        if error.is_reset() { error.reason() } else { None }
    }

    /// The size of a message that was over the limit, as tonic words it. What a server says by itself has the metadata
    /// of its trailers.
    fn too_large(&self) -> Option<&str> {
        if self.status.code() != tonic::Code::OutOfRange || !self.status.metadata().is_empty() {
            return None;
        }
        let text = self.status.message().strip_prefix("Error, decoded message length too large: found ")?;
        text.split(' ').next()
    }
}

/// `ENHANCE_YOUR_CALM` is what gRPC servers say to clients that ping more than they allow (A8).
fn is_too_many_pings(end: &hyper::Error) -> bool {
    h2_error(end).is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    })
}

/// gRPC's codes for streams that are reset.
fn code_of(reset: h2::Reason) -> Code {
    match reset {
        h2::Reason::REFUSED_STREAM => Code::Unavailable,
        h2::Reason::CANCEL => Code::Cancelled,
        h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

fn h2_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a h2::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}
