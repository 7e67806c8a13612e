//! A management server in a simulated world: the session of the embedded control plane, and its faults.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    family::ServerBehavior,
    parts::{Full, Part, any, message},
    request_rules::RequestRules,
    script::{Fault, ServerMode, Text, Ty},
    session::{Response, ServerSession},
    stream_rules::{Due, StreamRules},
};
use crate::{
    config::{ApiType, Server},
    control_plane::{
        AnyResource, Store,
        session::{AfterNack, Held, Settings},
        store::Stored,
    },
    pb::{
        envoy::service::discovery::v3::{ResourceError, ResourceName},
        google::{protobuf::Any, rpc::Status},
    },
    protocol::StreamId,
    wire,
};

/// A server, and the one stream to it.
pub(super) struct SimServer {
    pub(super) config: Arc<Server>,
    pub(super) settings: Settings,
    /// Whether its streams end with the status OK after some time.
    pub(super) ends_cleanly: bool,
    pub(super) ends_over_limit: bool,
    /// When streams ended one after the other by a message over the limit.
    over_limit: Vec<Instant>,
    repeats_versions: bool,
    pub(super) store: Store,
    /// Earlier states of the store.
    past: Vec<Store>,
    pub(super) mode: ServerMode,
    /// The next timeout of its session.
    pub(super) next_timeout: Option<Instant>,
    /// The types that it does not send.
    pub(super) held: Held,
    /// How its responses are to be answered.
    pub(super) due: fn(&Response) -> Due,
    /// Whether new streams are refused. An open stream stays.
    pub(super) is_closed: bool,
    /// Set for good by a response that contradicts the store: an invalid resource, or an error in place of one.
    pub(super) contradicts_store: bool,
    /// The attempt to connect that is under way.
    pub(super) attempt: Option<StreamId>,
    pub(super) open: Option<Open>,
    /// The server's side of the last stream that ended, and the rules of that stream.
    before: Option<ServerSession>,
    rules_before: StreamRules,
    /// No stream came about, or the last one ended without a response.
    pub(super) failing: bool,
    /// When a stream ended last.
    pub(super) ended_at: Option<Instant>,
    faults: u64,
    restarts: u64,
}

/// An open stream.
pub(super) struct Open {
    pub(super) stream: StreamId,
    pub(super) since: Instant,
    pub(super) session: ServerSession,
    pub(super) rules: StreamRules,
    pub(super) requests: RequestRules,
    /// What the server has sent and the client has not read.
    pub(super) unread: VecDeque<SentResponse>,
    pub(super) credit: usize,
    last: Option<SentResponse>,
    /// Whether nothing is transferred any more, in either direction.
    pub(super) is_unresponsive: bool,
    /// When a half-open connection was accepted, of which the client reads nothing.
    pub(super) unread_since: Option<Instant>,
    /// A response came.
    pub(super) answered: bool,
    /// Whether a fault was injected that only a new stream corrects: the worlds cut it before they check convergence.
    pub(super) is_inconsistent: bool,
}

/// A message of a server.
#[derive(Debug, Clone)]
pub(super) struct SentResponse {
    pub(super) bytes: Vec<u8>,
    pub(super) due: Due,
    /// When it was sent, if it was.
    pub(super) at: Option<Instant>,
    /// Whether the script of the world repeats the response, whatever the client answered.
    pub(super) is_repeated: bool,
}

impl SimServer {
    pub(super) fn new(
        config: Arc<Server>,
        ServerBehavior { settings, ends_cleanly, ends_over_limit, versions, repeats_versions }: ServerBehavior,
    ) -> Self {
        Self {
            config,
            settings,
            ends_cleanly,
            ends_over_limit,
            over_limit: Vec::new(),
            store: Store::new().with_versions(versions),
            repeats_versions,
            past: Vec::new(),
            mode: ServerMode::Normal,
            next_timeout: None,
            held: Held::none(),
            due,
            is_closed: false,
            contradicts_store: false,
            attempt: None,
            open: None,
            before: None,
            rules_before: StreamRules::default(),
            failing: false,
            ended_at: None,
            faults: 0,
            restarts: 0,
        }
    }

    /// Whether it uses the incremental variant.
    pub(super) fn is_delta(&self) -> bool {
        self.config.api_type.is_some_and(ApiType::is_delta)
    }

    /// Whether it holds some answers back until something changes.
    pub(super) fn withholds_responses(&self) -> bool {
        let behavior = &self.settings.behavior;
        behavior.after_nack == AfterNack::Silence || behavior.new_names_with_next_version
    }

    /// Whether it supports a type. If not, it ends the stream when that is requested.
    pub(super) fn supports(&self, ty: Ty) -> bool {
        !self.settings.behavior.unknown_types.contains(ty.url())
    }

    /// Whether it sends the subscribed resources of a type now: it supports the type, and all names that it requires are subscribed.
    pub(super) fn serves(&self, ty: Ty) -> bool {
        if !self.settings.behavior.all_names_only || self.is_delta() {
            return self.supports(ty);
        }
        let Some(open) = &self.open else { return false };
        let subscribed = open.session.subscribed(ty.url());
        let of_type = self.store.get(ty.url());
        let has_all = of_type.iter().all(|(name, _)| subscribed.contains(&name));
        self.supports(ty) && (has_all || subscribed.contains(&"*"))
    }

    /// A stream ended by a message over the limit, or otherwise. The pauses between such streams grow.
    pub(super) fn on_ended(&mut self, is_over_limit: bool, now: Instant) {
        self.ended_at = Some(now);
        if !is_over_limit {
            return self.over_limit.clear();
        }
        self.over_limit.retain(|at| now < *at + Duration::from_secs(60));
        self.over_limit.push(now);
        assert!(self.over_limit.len() < 12, "streams end by a message over the limit too often");
    }

    /// Its URI, as in errors.
    pub(super) fn uri(&self) -> String {
        self.config.uri.to_string()
    }

    /// Its resource of a name.
    pub(super) fn text(&self, ty: Ty, name: &str) -> Option<String> {
        self.store.get(ty.url()).resource(name).map(|stored| text_of(stored.bytes()))
    }

    pub(super) fn is_current(&self, stream: StreamId) -> bool {
        self.attempt == Some(stream) || self.open.as_ref().is_some_and(|open| open.stream == stream)
    }

    /// A resource changes.
    pub(super) fn set(&mut self, (ty, name): (Ty, &str), text: Option<String>) {
        self.past.push(self.store.clone());
        self.store.update(|tx| match &text {
            Some(text) => drop(tx.set(AnyResource::new(ty.url(), name, message(name, text)))),
            None => drop(tx.remove(ty.url(), name)),
        });
    }

    /// Restarts the server with an earlier state of its store, by number modulo how many there are.
    pub(super) fn restore(&mut self, to: u8) {
        if let Some(past) = self.past.get(usize::from(to) % self.past.len().max(1)) {
            self.restarts += 1;
            // A server that starts again knows nothing of earlier streams, so that the next session resumes none.
            self.before = None;
            // Without a prefix, a version of this life may be that of other contents in the life before.
            let life = if self.repeats_versions { String::new() } else { format!("{}.", self.restarts) };
            self.store = past.clone().with_version_prefix(life);
        }
        self.past.truncate(64);
    }

    /// Its stream, or the attempt to open one, is over.
    pub(super) fn close(&mut self) {
        self.attempt = None;
        if let Some(open) = self.open.take() {
            // What the client has accepted and rejected is remembered beyond a stream, by the server and by the rules.
            (self.before, self.rules_before) = (Some(open.session), open.rules);
        }
    }

    pub(super) fn on_connected(&mut self, stream: StreamId, now: Instant) {
        self.attempt = None;
        let session = ServerSession::new(self.is_delta(), self.settings.clone(), self.before.as_ref());
        self.open = Some(Open {
            stream,
            since: now,
            session,
            rules: self.rules_before.next(),
            requests: RequestRules::default(),
            unread: VecDeque::new(),
            credit: 0,
            last: None,
            is_unresponsive: self.mode == ServerMode::HalfOpen,
            unread_since: (self.mode == ServerMode::HalfOpen).then_some(now),
            answered: false,
            is_inconsistent: false,
        });
    }

    /// Sends the responses that are due. Returns when more may be due.
    pub(super) fn serve(&mut self, now: Instant) -> Option<Instant> {
        let open = self.open.as_mut()?;
        let mut held = self.held.clone();
        match self.mode {
            ServerMode::Silent => return None,
            ServerMode::SilentFor(ty) => held.hold(ty.url()),
            ServerMode::Normal
            | ServerMode::Refusing
            | ServerMode::Hanging
            | ServerMode::Slow
            | ServerMode::Flapping
            | ServerMode::HalfOpen => {}
        }
        if open.is_unresponsive {
            return None;
        }
        open.session.set_held(held);
        let next = open.session.handle_time(now, &self.store);
        while let Some(response) = open.session.poll_response(&self.store) {
            open.send(&response, (self.due)(&response));
        }
        next
    }

    /// Whether it sends rejected resources again.
    pub(super) fn resends_rejected(&self) -> bool {
        match self.settings.behavior.after_nack {
            AfterNack::SameResources | AfterNack::SameResourcesLater => true,
            AfterNack::Nothing | AfterNack::Silence => false,
        }
    }

    /// Injects a fault.
    pub(super) fn inject_fault(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        self.faults += 1;
        self.contradicts_store |= match fault {
            Fault::DuplicateName(_) | Fault::WrongType(_) | Fault::Error(..) => true,
            Fault::Garbage | Fault::RandomBytes => true,
            Fault::Repeat | Fault::UnknownType => false,
        };
        let nonce = format!("fault {}", self.faults);
        let Some(open) = self.open.as_mut().filter(|open| !open.is_unresponsive) else { return };
        match fault {
            Fault::Garbage => {
                let bytes = vec![0x0f; random.usize(1..50)];
                open.unread.push_back(SentResponse { bytes, due: Due::Either, at: None, is_repeated: false });
            }
            Fault::UnknownType => {
                let type_url = "type.googleapis.com/a.Unknown".into();
                let response = open.session.response((type_url, nonce), vec![], vec![]);
                open.unread.push_back(SentResponse {
                    bytes: response.encode(),
                    due: Due::Either,
                    at: None,
                    is_repeated: false,
                });
            }
            Fault::RandomBytes => {
                let bytes = match random.bool() {
                    true => (0..random.usize(0..50)).map(|_| random.u8(..)).collect(),
                    false => {
                        let type_url = "type.googleapis.com/a.Unknown".into();
                        open.session.response((type_url, String::new()), vec![], vec![]).encode()
                    }
                };
                open.unread.push_back(SentResponse { bytes, due: Due::Either, at: None, is_repeated: false });
            }
            Fault::Repeat => {
                open.unread.extend(open.last.clone().map(|sent| SentResponse { is_repeated: true, ..sent }));
                // A name that it removes may have been requested since.
                open.is_inconsistent |= open.session.is_delta();
            }
            Fault::DuplicateName(ty) => {
                let name = open.any_name(ty, random);
                let resources = vec![invalid_resource(ty, &name); 2];
                open.send_invalid((ty, nonce), resources, Due::Nack);
            }
            Fault::WrongType(ty) => {
                let name = open.any_name(ty, random);
                let (_, other) = invalid_resource(ty.other(), &name);
                // Every third time the name is known at most from a wrapper, otherwise it is not.
                match self.faults % 3 {
                    0 => open.send_invalid((ty, nonce), vec![(name, other)], Due::Nack),
                    1 => open.send_invalid((ty, nonce), vec![invalid_resource(ty, "")], Due::Nack),
                    _ => open.send_unnamed_error((ty, nonce)),
                }
            }
            Fault::Error(ty, code) => self.send_resource_error((ty, nonce), code, random),
        }
    }

    /// Sends an error in place of one of its resources, and the others.
    fn send_resource_error(&mut self, (ty, nonce): (Ty, String), code: u8, random: &mut fastrand::Rng) {
        let uri = self.uri();
        let now = self.store.get(ty.url());
        let Some(open) = self.open.as_mut().filter(|open| open.rules.is_requested(ty.url())) else {
            return;
        };
        let name = open.any_name(ty, random);
        let subscribed = open.session.subscribed(ty.url());
        let gives_all = subscribed.contains(&"*") || self.settings.behavior.unsolicited_resources;
        let is_subscribed = |name: &str| gives_all || subscribed.contains(&name);
        let given = now.iter().filter(|(other, _)| *other != name && is_subscribed(other));
        let any = |stored: &Stored| Any { type_url: ty.url().into(), value: stored.bytes().clone() };
        let resources = given.map(|(name, stored)| (name.to_owned(), any(stored)));
        // Where absence has no meaning, they are sent already.
        let resources: Vec<_> = resources.filter(|_| !open.session.is_delta()).collect();
        // NOT_FOUND and PERMISSION_DENIED are errors of the resource, UNAVAILABLE and INTERNAL are transient (A88-3).
        let code = [5, 7, 14, 13][usize::from(code) % 4];
        let error = ResourceError {
            resource_name: Some(ResourceName { name: name.clone(), ..Default::default() }),
            error_detail: Some(Status { code, message: format!("denied by {uri}"), details: vec![] }),
        };
        let response = open.session.response((ty.url().into(), nonce), resources, vec![error]);
        open.session.note_sent(&response);
        open.is_inconsistent = true;
        open.send(&response, (self.due)(&response));
    }
}

impl Open {
    /// Whether the client has read nothing for the does-not-exist time, and may give up the connection for that.
    pub(super) fn is_unread_since(&self, now: Instant) -> bool {
        self.unread_since.is_some_and(|since| since + Duration::from_secs(15) <= now)
    }

    fn send(&mut self, response: &Response, due: Due) {
        let sent = SentResponse { bytes: response.encode(), due, at: None, is_repeated: false };
        self.last = Some(sent.clone());
        self.unread.push_back(sent);
    }

    fn send_invalid(&mut self, (ty, nonce): (Ty, String), resources: Vec<(String, Any)>, due: Due) {
        if !self.rules.is_requested(ty.url()) {
            return;
        }
        let response = self.session.response((ty.url().into(), nonce), resources, vec![]);
        self.session.note_sent(&response);
        // What waits has its error until it is sent.
        self.is_inconsistent = true;
        self.send(&response, due);
    }

    /// Sends an error in place of something that has no name.
    fn send_unnamed_error(&mut self, (ty, nonce): (Ty, String)) {
        if !self.rules.is_requested(ty.url()) {
            return;
        }
        let status = Status { code: 13, message: "without a name".to_owned(), details: vec![] };
        let error = ResourceError { resource_name: None, error_detail: Some(status) };
        let response = self.session.response((ty.url().into(), nonce), vec![], vec![error]);
        self.session.note_sent(&response);
        self.is_inconsistent = true;
        self.send(&response, Due::Nack);
    }

    fn any_name(&self, ty: Ty, random: &mut fastrand::Rng) -> String {
        let subscribed: Vec<_> =
            self.session.subscribed(ty.url()).into_iter().filter(|name| *name != "*").collect();
        match subscribed.len() {
            0 => "r0".to_owned(),
            count => subscribed[random.usize(0..count)].to_owned(),
        }
    }
}

impl Text {
    /// The text of a resource of a server, or `None` when it is deleted.
    pub(super) fn on(self, server: usize, number: u64) -> Option<String> {
        match self {
            Self::Good => Some(format!("s{server} {number}")),
            Self::Bad => Some("bad".to_owned()),
            Self::Gone => None,
        }
    }
}

/// The text of a message.
pub(super) fn text_of(bytes: &[u8]) -> String {
    wire::string_field(bytes, 2).expect("resources of the world are messages").to_owned()
}

fn due(response: &Response) -> Due {
    if response.has_bad() { Due::Either } else { Due::Ack }
}

/// A resource that no watch may show.
fn invalid_resource(ty: Ty, name: &str) -> (String, Any) {
    let any = match ty {
        Ty::Full => any::<Full>(name, "fault"),
        Ty::Part => any::<Part>(name, "fault"),
    };
    (name.to_owned(), any)
}
