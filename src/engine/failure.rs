use super::Engine;
use crate::{
    error::{Blame, Code, Subject, WatchError},
    protocol::{Disconnect, DisconnectKind, EntryId, ServerId},
};

/// Trouble with a server as a whole: it shows on each of its resources that nothing worse is known of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Code,
    blame: Blame,
    message: String,
}

impl Failure {
    fn new(uri: &str, reason: &Disconnect) -> Self {
        let text = &reason.message;
        let (code, blame, message) = match reason.kind {
            DisconnectKind::Unreachable => {
                (Code::Unavailable, Blame::Network, format!("cannot connect to xDS server {uri}: {text}"))
            }
            DisconnectKind::Closed => (
                Code::Unavailable,
                Blame::Peer,
                format!("xDS server {uri} ended the stream without a response"),
            ),
            DisconnectKind::Failed(code) => (
                Code::Unavailable,
                Blame::Network,
                format!("the stream to xDS server {uri} failed: {code}: {text}"),
            ),
            DisconnectKind::TooManyPings => {
                (Code::Unavailable, Blame::Peer, format!("xDS server {uri} got too many pings: {text}"))
            }
            DisconnectKind::TooLarge { limit } => (
                Code::ResourceExhausted,
                Blame::Local,
                format!(
                    "a message of xDS server {uri} is over the limit of {limit} bytes (setting max_message_size)"
                ),
            ),
            DisconnectKind::Credentials => {
                (Code::Unavailable, Blame::Local, format!("no credentials for xDS server {uri}: {text}"))
            }
        };
        Self { code, blame, message }
    }

    /// The same for one resource.
    pub(crate) fn about(&self, subject: Subject) -> WatchError {
        WatchError::of_server(self.code, self.blame, subject, self.message.as_str())
    }
}

impl Engine {
    /// No stream came about, or one ended before it gave anything: everybody who watches something of it hears of it.
    pub(crate) fn on_failed(&mut self, server: ServerId, reason: &Disconnect) {
        let peer = self.peer(server);
        let failure = Failure::new(&peer.machine.server().uri.to_string(), reason);
        if peer.failure.as_ref() == Some(&failure) {
            return;
        }
        peer.failure = Some(failure);
        self.publish_failure(server);
    }

    /// The first response of a stream clears what the failures before it had to say.
    pub(crate) fn on_recovered(&mut self, server: ServerId) {
        if self.peer(server).failure.take().is_some() {
            self.publish_failure(server);
        }
    }

    fn publish_failure(&mut self, server: ServerId) {
        let showing = self.table.iter().filter(|(_, entry)| entry.server == server && entry.shows_failure());
        let showing: Vec<_> = showing.map(|(id, _)| id).collect();
        for id in showing {
            let error = self.failure_of(id);
            if self.table.get_mut(id).is_some_and(|entry| entry.on_failure(error).into()) {
                self.publish(id);
            }
        }
        for ty in &mut self.peer(server).types {
            if let Some(all) = &mut ty.all {
                all.touch();
            }
        }
    }

    /// The server had its time (A57-5, A88-5).
    pub(crate) fn on_timed_out(&mut self, entry: EntryId) {
        let Some(found) = self.table.get(entry) else { return };
        let peer = &self.servers[found.server.0 as usize];
        let uri = &peer.machine.server().uri;
        let (code, message) = if peer.machine.server().features.resource_timer_is_transient_error {
            (Code::Unavailable, format!("xDS server {uri} did not send it in time"))
        } else {
            (Code::NotFound, format!("does not exist: xDS server {uri} did not send it in time"))
        };
        let error = WatchError::new(code, Blame::Peer, self.subject(found), message);
        let policy = peer.policy;
        let Some(found) = self.table.get_mut(entry) else { return };
        // What is held was missing from a response, but may have been on its way still.
        let news = if found.is_held() { found.on_deleted(error, policy) } else { found.on_timeout(error) };
        let (server, ty, sub, held) = (found.server, found.ty, found.sub, found.is_held());
        if let Some(sub) = self.peer(server).machine.interest(ty).and_then(|interest| interest.get_mut(sub)) {
            sub.held = held;
        }
        if news.into() {
            self.publish(entry);
            self.dismiss(entry);
        }
    }
}
