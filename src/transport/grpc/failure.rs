//! The reason of the end of a stream, from the errors of tonic, h2 and hyper.

use std::{borrow::Cow, error::Error};

use tonic::Status;

use crate::{
    config::ChannelCredentials,
    dial,
    error::Code,
    transport::{
        Disconnect, DisconnectKind,
        socket::{causes, explain, with_causes},
    },
};

/// The unsuccessful end of a stream.
#[derive(Debug)]
pub(super) struct Failure {
    /// The status of the stream, from the server or from a layer below.
    status: Status,
    /// The largest response in bytes.
    limit: usize,
    /// The path of the method.
    method: Cow<'static, str>,
    /// The credentials of the connection, if the server has never responded.
    unanswered: Option<ChannelCredentials>,
}

impl Failure {
    /// Creates the failure of a stream with responses.
    pub(super) fn new(status: Status, limit: usize, method: Cow<'static, str>) -> Self {
        Self { status, limit, method, unanswered: None }
    }

    /// Notes that the server has sent nothing, not even headers, so that hints at misconfiguration are useful.
    pub(super) fn without_answer(mut self, channel: &ChannelCredentials) -> Self {
        self.unanswered = Some(channel.clone());
        self
    }

    /// Whether the connection itself may have failed, and has a more precise reason.
    pub(super) fn may_be_the_connections(&self) -> bool {
        self.status.source().is_some() && self.reset().is_none()
    }

    /// Converts the failure. `end` is the error of the connection, if it has ended.
    pub(super) fn into_disconnect(self, end: Option<&hyper::Error>) -> Disconnect {
        if let Some(end) = end
            && h2_error(end).is_some_and(dial::is_too_many_pings)
        {
            return Disconnect::new(DisconnectKind::TooManyPings, with_causes(end));
        }
        // A kind of its own: each new stream would break in the same way, so that the watches get the error at once.
        if let Some(size) = self.too_large() {
            let limit = self.limit;
            let message = format!("a message of {size} bytes, with a limit of {limit} bytes");
            return Disconnect::new(DisconnectKind::TooLarge { limit }, message);
        }
        let (code, message) = match (self.status.source(), self.reset(), end) {
            // Without a source, the status is the server's, or one that tonic has made of its bytes.
            (None, _, _) => (Code::from_i32(self.status.code() as i32), self.message().into_owned()),
            (Some(source), Some(reason), _) => (code_of(reason), with_causes(source)),
            (Some(_), None, Some(end)) => (Code::Unavailable, self.explain(end)),
            (Some(source), None, None) => (Code::Unavailable, self.explain(source)),
        };
        Disconnect::new(DisconnectKind::Failed(code), message)
    }

    /// Returns the message of the server, or a hint where it has none.
    fn message(&self) -> Cow<'_, str> {
        match (self.status.code(), self.status.message()) {
            // The status of all gRPC servers for a service that they do not have, without a message.
            (tonic::Code::Unimplemented, "") if self.method.contains("AggregatedDiscoveryService") => {
                "no aggregated discovery service (ADS) there; is this its port?".into()
            }
            (tonic::Code::Unimplemented, "") => {
                format!("nothing there serves {}; is this its port?", self.method).into()
            }
            (_, message) => message.into(),
        }
    }

    /// Describes an error, with a hint if the server has never responded.
    fn explain(&self, error: &(dyn Error + 'static)) -> String {
        match &self.unanswered {
            Some(channel) => explain(error, channel),
            None => with_causes(error),
        }
    }

    /// Returns the reason in HTTP/2, if the stream was reset and not the connection.
    fn reset(&self) -> Option<h2::Reason> {
        let error = h2_error(self.status.source()?)?;
        if error.is_reset() { error.reason() } else { None }
    }

    /// Returns the size of a message over the limit: tonic reports it by the text of its status alone.
    fn too_large(&self) -> Option<usize> {
        let text = self.status.message().strip_prefix("Error, decoded message length too large: found ")?;
        let (size, limit) = text.strip_suffix(" bytes")?.split_once(" bytes, the limit is: ")?;
        let size = size.parse().ok().filter(|size| *size > self.limit)?;
        // A server may send this text as its own status, about another limit.
        let is_ours = self.status.code() == tonic::Code::OutOfRange && limit.parse() == Ok(self.limit);
        is_ours.then_some(size)
    }
}

/// Returns gRPC's code for a reset stream.
fn code_of(reset: h2::Reason) -> Code {
    match reset {
        h2::Reason::REFUSED_STREAM => Code::Unavailable,
        h2::Reason::CANCEL => Code::Cancelled,
        h2::Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        h2::Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

/// Finds an error of h2 among the causes.
fn h2_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a h2::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}
