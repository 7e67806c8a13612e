//! The failure of a server as a whole, and the texts of errors about servers.
//!
//! A server is either a management server over the network, whose operator is another person, or a file. The messages are
//! written for whoever reads the log of the client: they name the server, the likely cause and the setting to look at.

use std::fmt::Display;

use crate::{
    error::{Blame, Code, Subject, WatchError},
    protocol::{Disconnect, DisconnectKind, Machine, SourceKey},
    wire::Malformed,
};

/// An error of a server as a whole: it is visible on each of its resources without an error of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Code,
    blame: Blame,
    /// The text without the name of a resource, which its watches add.
    message: String,
}

impl Failure {
    /// The failure that the end of a stream, or of a poll, means for all resources of a source. Blame is on the network where
    /// the transport failed, on the server where it has answered with something unusable, and local for files and credentials.
    pub(super) fn new(source_key: &SourceKey, reason: &Disconnect) -> Self {
        let capabilities = source_key.capabilities();
        if !capabilities.remote {
            return Self::of_file(source_key, reason);
        }
        let (text, uri) = (&reason.message, source_key);
        let (code, blame, message) = match reason.kind {
            DisconnectKind::Unreachable => {
                (Code::Unavailable, Blame::Network, format!("cannot connect to xDS server {uri}: {text}"))
            }
            DisconnectKind::Closed => (
                Code::Unavailable,
                Blame::Peer,
                format!("xDS server {uri} ended the stream without a response"),
            ),
            // A poll has no stream that could have failed, only an exchange.
            DisconnectKind::Failed(code) if !capabilities.streaming => (
                Code::Unavailable,
                Blame::Network,
                format!("xDS server {uri} did not answer: {code}: {text}"),
            ),
            DisconnectKind::Failed(code) => (
                Code::Unavailable,
                Blame::Network,
                format!("the stream to xDS server {uri} failed: {code}: {text}"),
            ),
            DisconnectKind::TooManyPings => (
                Code::Unavailable,
                Blame::Peer,
                format!("xDS server {uri} rejected keepalive pings as too many: {text}"),
            ),
            DisconnectKind::TooLarge { limit } => (
                Code::ResourceExhausted,
                Blame::Local,
                format!(
                    "a message of xDS server {uri} is over the limit of {limit} bytes (setting max_message_size)"
                ),
            ),
            DisconnectKind::Unusable => (
                Code::InvalidArgument,
                Blame::Peer,
                format!("xDS server {uri} sent a response that cannot be decoded: {text}"),
            ),
            DisconnectKind::Credentials => {
                (Code::Unavailable, Blame::Local, format!("no credentials for xDS server {uri}: {text}"))
            }
        };
        Self { code, blame, message }
    }

    /// A file is local: what is wrong with it is a matter of this machine, whatever its kind.
    fn of_file(file: &SourceKey, reason: &Disconnect) -> Self {
        let text = &reason.message;
        let (code, message) = match reason.kind {
            DisconnectKind::Unusable => (Code::InvalidArgument, format!("{file} cannot be used: {text}")),
            DisconnectKind::TooLarge { .. } => {
                (Code::ResourceExhausted, format!("cannot read {file}: {text}"))
            }
            DisconnectKind::Unreachable
            | DisconnectKind::Closed
            | DisconnectKind::Failed(_)
            | DisconnectKind::TooManyPings
            | DisconnectKind::Credentials => (Code::Unavailable, format!("cannot read {file}: {text}")),
        };
        Self { code, blame: Blame::Local, message }
    }

    /// The failure of the last one of several servers, with the errors of `all` of them in its message.
    /// The watches of a group see why none of its servers can be used, not only the last one.
    pub(super) fn after<'a>(&self, all: impl Iterator<Item = &'a Self>) -> Self {
        let messages: Vec<_> = all.map(|failure| failure.message.as_str()).collect();
        Self { message: messages.join("; "), ..self.clone() }
    }

    /// The failure of one type alone, which was never answered on the streams that ended so.
    /// The usual cause is a server that does not serve the type, which ends the stream for the request (MS3).
    pub(super) fn of_type(self, is_held_back: bool) -> Self {
        let why = match is_held_back {
            true => "requests for the type are suspended so that other types are served",
            false => "no response of the type was ever received",
        };
        Self { message: format!("{}; {why}; does the server support it?", self.message), ..self }
    }

    pub(super) fn code(&self) -> Code {
        self.code
    }

    /// The text, without the name of a resource.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The failure as the error of one resource.
    pub(crate) fn about(&self, subject: Subject) -> WatchError {
        WatchError::of_server(self.code, self.blame, subject, self.message.as_str())
    }
}

/// The message for a resource that a server reported as nonexistent.
pub(super) fn no_such(uri: &impl Display) -> String {
    format!(
        "does not exist: xDS server {uri} does not have it; is the name correct and visible to this node?"
    )
}

/// The message for what a server may have sent in a response that is none.
pub(super) fn cannot_be_read(uri: &impl Display, malformed: Malformed) -> String {
    format!("xDS server {uri} sent a response that cannot be read: {malformed}")
}

/// The hint for a polled server that answered with "not found": the status is the same for a wrong address.
pub(super) fn not_found_hint(machine: &Machine) -> String {
    let hint = |path: &str| {
        format!(" (HTTP status 404 at {path}; if that is not expected, is this the URL of the server's API?)")
    };
    machine.not_found_at().map(hint).unwrap_or_default()
}
