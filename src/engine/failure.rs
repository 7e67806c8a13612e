use std::{fmt::Display, time::Instant};

use super::Engine;
use crate::{
    cache::{Entry, Update},
    config::ConfigSource,
    error::{Blame, Code, Subject, WatchError},
    protocol::{Disconnect, DisconnectKind, EntryId, Machine, ServerId, SourceKey},
    resource::Version,
};

/// Trouble with a server as a whole: it shows on each of its resources that nothing worse is known of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Code,
    blame: Blame,
    message: String,
}

impl Failure {
    pub(super) fn new(contact: &SourceKey, reason: &Disconnect) -> Self {
        if contact.is_file() {
            return Self::of_file(contact.source(), reason);
        }
        let (text, uri) = (&reason.message, contact.source());
        let (code, blame, message) = match reason.kind {
            DisconnectKind::Unreachable => {
                (Code::Unavailable, Blame::Network, format!("cannot connect to xDS server {uri}: {text}"))
            }
            DisconnectKind::Closed => (
                Code::Unavailable,
                Blame::Peer,
                format!("xDS server {uri} ended the stream without a response"),
            ),
            DisconnectKind::Failed(code) if contact.is_polled() => (
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

    fn of_file(file: &ConfigSource, reason: &Disconnect) -> Self {
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

    /// The same as the last one of several servers, with what was wrong with each.
    pub(super) fn after<'a>(&self, all: impl Iterator<Item = &'a Self>) -> Self {
        let messages: Vec<_> = all.map(|failure| failure.message.as_str()).collect();
        Self { message: messages.join("; "), ..self.clone() }
    }

    /// The same of one type alone: it was never answered on the streams that ended so.
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

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The same for one resource.
    pub(crate) fn about(&self, subject: Subject) -> WatchError {
        WatchError::of_server(self.code, self.blame, subject, self.message.as_str())
    }
}

/// What is said of a resource that a server says is not there.
pub(super) fn no_such(uri: &impl Display) -> String {
    format!(
        "does not exist: xDS server {uri} does not have it; is the name correct and visible to this node?"
    )
}

/// Where a server that is polled has answered that there is nothing: its status cannot tell that from a wrong address.
pub(super) fn not_found_hint(machine: &Machine) -> String {
    let hint = |path: &str| {
        format!(" (HTTP status 404 at {path}; if that is not expected, is this the URL of the server's API?)")
    };
    machine.not_found_at().map(hint).unwrap_or_default()
}

impl Engine {
    /// No stream came about, or one ended before it gave anything. Each authority that it serves goes on with the next
    /// server, or else everybody who watches something of it hears of it.
    pub(crate) fn on_failed(&mut self, server: ServerId, reason: &Disconnect, now: Instant) {
        let peer = self.peer(server);
        let failure = Failure::new(peer.machine.contact(), reason);
        if peer.failure.as_ref() == Some(&failure) {
            return;
        }
        (peer.failure, peer.failed_at) = (Some(failure), Some(now));
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                self.fall_back(group, now);
                self.judge(group);
                self.warn_unanswered(group, now);
            }
        }
    }

    /// The first response of a stream. Streams of other types that could not reach the same server try at once: what is told
    /// of clusters and of the routes that lead to them after an outage must not be seconds apart.
    pub(crate) fn on_answered(&mut self, server: ServerId, now: Instant) {
        self.on_recovered(server);
        let source = self.servers[server].machine.source();
        let others: Vec<_> = self.servers.of_source(source).filter(|other| *other != server).collect();
        for other in others {
            self.peer(other).machine.hasten(now);
        }
    }

    /// The first response of a stream clears what the failures before it had to say.
    pub(crate) fn on_recovered(&mut self, server: ServerId) {
        if self.peer(server).failure.take().is_none() {
            return;
        }
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                self.judge(group);
            }
        }
    }

    /// Nobody wants anything of a server any more, and so nobody is told that its failures are history.
    pub(crate) fn on_rested(&mut self, server: ServerId) {
        self.on_recovered(server);
        for group in self.groups.with(server) {
            self.forget_fallback(group);
        }
        self.unused.note_server(server);
    }

    /// A server had its time (A57-5, A88-5). It does not matter as long as a lower one serves.
    pub(crate) fn on_timed_out(&mut self, server: ServerId, id: EntryId, now: Instant) {
        let Some(entry) = self.table.get(id) else { return };
        let active = self.active_for(entry);
        if server != active && self.servers[active].failure.is_none() {
            return;
        }
        if self.is_glob_known(id, now) {
            return;
        }
        let Some(entry) = self.table.get(id) else { return };
        let peer = &self.servers[server];
        let uri = peer.machine.source();
        let sub = entry.places.at(server).and_then(|sub| peer.machine.sub(entry.ty, sub));
        let is_transient = peer.machine.source().features().resource_timer_is_transient_error;
        let (code, message) = if peer.machine.contact().is_file() {
            (Code::NotFound, format!("does not exist: {uri} does not hold it"))
        } else if peer.machine.is_delta() && sub.is_some_and(|sub| sub.missed && sub.heard) {
            // It has said so while its answers did not count.
            (Code::NotFound, no_such(uri))
        } else {
            let (code, prefix) = match is_transient {
                true => (Code::Unavailable, ""),
                false => (Code::NotFound, "does not exist: "),
            };
            let hint = self.timeout_hint(server, entry);
            let at = not_found_hint(&peer.machine);
            (code, format!("{prefix}xDS server {uri} did not send it in time{hint}{at}"))
        };
        let error = WatchError::new(code, Blame::Peer, self.subject(entry), message);
        let policy = peer.policy;
        // What is held was missing from a response, but may have been on its way still.
        let changed = self.give_news(id, |entry| match entry.is_held() {
            true => entry.on_deleted(error, policy, Update { version: Version::default(), at: now }),
            false => entry.on_timeout(error, now),
        });
        self.note_held(id);
        if changed {
            self.publish(id);
            self.dismiss(id);
        }
    }

    /// What an operator should look at when a server has not sent a resource in time.
    fn timeout_hint(&self, server: ServerId, entry: &Entry) -> &'static str {
        let machine = &self.servers[server].machine;
        if !machine.stream().has_answered() {
            return "; the server accepted the stream but has sent no response (is this node known to it?)";
        }
        let is_sotw = !machine.is_delta() && !machine.contact().is_polled();
        let is_full_state = self.types[entry.ty.index()].full_state();
        let is_unanswered =
            || entry.places.at(server).is_some_and(|sub| machine.is_unanswered(entry.ty, sub));
        if is_sotw && !is_full_state && is_unanswered() {
            return ALL_NAMES_HINT;
        }
        "; is the name correct and visible to this node?"
    }
}

/// go-control-plane in ADS mode leaves a request unanswered until it names all resources of the type in its snapshot, except
/// in the incremental variant.
const ALL_NAMES_HINT: &str = ", nor any other resource of the type; is the name correct and visible to this node? Some servers \
    respond only to requests that name all resources of a type, as go-control-plane does in ADS mode (watch all of them, or use \
    the incremental variant, api_type AGGREGATED_DELTA_GRPC)";
