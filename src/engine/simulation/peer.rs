//! A management server in a simulated world: the real one's session, and what is wrong with it.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    dialogue::{Dialogue, Due},
    family::Manner,
    parts::{Full, Part, any, message},
    script::{Lie, Mood, Text, Ty},
    talk::{Response, Talk},
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
pub(super) struct Peer {
    pub(super) server: Arc<Server>,
    pub(super) settings: Settings,
    /// Its streams end with the status OK after some time.
    pub(super) ends_cleanly: bool,
    pub(super) ends_over_limit: bool,
    /// When streams ended one after the other by a message over the limit.
    over_limit: Vec<Instant>,
    repeats_versions: bool,
    pub(super) store: Store,
    /// What the store was before.
    past: Vec<Store>,
    pub(super) mood: Mood,
    /// When it looks at the clock next.
    pub(super) looks_at: Option<Instant>,
    /// It says nothing of these types.
    pub(super) held: Held,
    /// How its responses are to be answered.
    pub(super) due: fn(&Response) -> Due,
    /// It accepts no new streams.
    pub(super) is_closed: bool,
    /// It sent that a resource is invalid or cannot be given though its store says otherwise.
    pub(super) slandered: bool,
    /// The attempt to connect that is under way.
    pub(super) attempt: Option<StreamId>,
    pub(super) open: Option<Open>,
    /// The server's side of the last stream that ended, and what was said on it.
    before: Option<Talk>,
    dialogue_before: Dialogue,
    /// No stream came about, or the last one ended without a response.
    pub(super) failing: bool,
    /// When a stream ended last.
    pub(super) ended_at: Option<Instant>,
    faults: u64,
    restarts: u64,
}

/// A stream that came about.
pub(super) struct Open {
    pub(super) stream: StreamId,
    pub(super) since: Instant,
    pub(super) talk: Talk,
    pub(super) dialogue: Dialogue,
    /// What the server has sent and the client has not read.
    pub(super) unread: VecDeque<SentResponse>,
    pub(super) credit: usize,
    last: Option<SentResponse>,
    /// Nothing goes through any more.
    pub(super) deaf: bool,
    /// The client has read nothing of the connection: since when.
    pub(super) unread_since: Option<Instant>,
    /// A response came.
    pub(super) answered: bool,
    /// Something was said that only a new stream puts right.
    pub(super) lied: bool,
}

/// A message of a server.
#[derive(Debug, Clone)]
pub(super) struct SentResponse {
    pub(super) bytes: Vec<u8>,
    pub(super) due: Due,
    /// When it was sent, if it was.
    pub(super) at: Option<Instant>,
    /// The script of the world has it said once more, whatever the client answered.
    pub(super) is_repeated: bool,
}

impl Peer {
    pub(super) fn new(
        server: Arc<Server>,
        Manner { settings, ends_cleanly, ends_over_limit, versions, repeats_versions }: Manner,
    ) -> Self {
        Self {
            server,
            settings,
            ends_cleanly,
            ends_over_limit,
            over_limit: Vec::new(),
            store: Store::new().with_versions(versions),
            repeats_versions,
            past: Vec::new(),
            mood: Mood::Fine,
            looks_at: None,
            held: Held::none(),
            due,
            is_closed: false,
            slandered: false,
            attempt: None,
            open: None,
            before: None,
            dialogue_before: Dialogue::default(),
            failing: false,
            ended_at: None,
            faults: 0,
            restarts: 0,
        }
    }

    /// Whether it is spoken to in the incremental variant.
    pub(super) fn is_delta(&self) -> bool {
        self.server.api_type.is_some_and(ApiType::is_delta)
    }

    /// Whether it holds some answers back until something changes.
    pub(super) fn falls_silent(&self) -> bool {
        let behavior = &self.settings.behavior;
        behavior.after_nack == AfterNack::Silence || behavior.new_names_with_next_version
    }

    /// Whether it knows a type. If not, it ends the stream when that is requested.
    pub(super) fn knows(&self, ty: Ty) -> bool {
        !self.settings.behavior.unknown_types.contains(ty.url())
    }

    /// Whether it gives what is subscribed to of a type now: it knows the type, and no names are missing that it wants to see.
    pub(super) fn gives(&self, ty: Ty) -> bool {
        if !self.settings.behavior.all_names_only || self.is_delta() {
            return self.knows(ty);
        }
        let Some(open) = &self.open else { return false };
        let subscribed = open.talk.subscribed(ty.url());
        let of_type = self.store.get(ty.url());
        let has_all = of_type.iter().all(|(name, _)| subscribed.contains(&name));
        self.knows(ty) && (has_all || subscribed.contains(&"*"))
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

    /// Where it is, as errors name it.
    pub(super) fn uri(&self) -> String {
        self.server.uri.to_string()
    }

    /// What it has under a name.
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

    /// It has again what it had at some time.
    pub(super) fn go_back(&mut self, to: u8) {
        if let Some(past) = self.past.get(usize::from(to) % self.past.len().max(1)) {
            self.restarts += 1;
            self.before = None;
            let life = if self.repeats_versions { String::new() } else { format!("{}.", self.restarts) };
            self.store = past.clone().with_version_prefix(life);
        }
        self.past.truncate(64);
    }

    /// Its stream, or the attempt to open one, is over.
    pub(super) fn close(&mut self) {
        self.attempt = None;
        if let Some(open) = self.open.take() {
            (self.before, self.dialogue_before) = (Some(open.talk), open.dialogue);
        }
    }

    pub(super) fn on_connected(&mut self, stream: StreamId, now: Instant) {
        self.attempt = None;
        let talk = Talk::new(self.is_delta(), self.settings.clone(), self.before.as_ref());
        self.open = Some(Open {
            stream,
            since: now,
            talk,
            dialogue: self.dialogue_before.next(),
            unread: VecDeque::new(),
            credit: 0,
            last: None,
            deaf: self.mood == Mood::HalfOpen,
            unread_since: (self.mood == Mood::HalfOpen).then_some(now),
            answered: false,
            lied: false,
        });
    }

    /// It says what it has to say. Returns when it may have more to say.
    pub(super) fn serve(&mut self, now: Instant) -> Option<Instant> {
        let open = self.open.as_mut()?;
        let mut held = self.held.clone();
        match self.mood {
            Mood::Silent => return None,
            Mood::Mute(ty) => held.hold(ty.url()),
            Mood::Fine | Mood::Refusing | Mood::Hanging | Mood::Slow | Mood::Flapping | Mood::HalfOpen => {}
        }
        if open.deaf {
            return None;
        }
        open.talk.set_held(held);
        let next = open.talk.handle_time(now, &self.store);
        while let Some(response) = open.talk.poll_response(&self.store) {
            open.send(&response, (self.due)(&response));
        }
        next
    }

    /// Whether it goes on sending what is rejected.
    pub(super) fn is_never_quiet(&self) -> bool {
        match self.settings.behavior.after_nack {
            AfterNack::SameResources | AfterNack::SameResourcesLater => true,
            AfterNack::Nothing | AfterNack::Silence => false,
        }
    }

    /// It says something that is not so.
    pub(super) fn lie(&mut self, lie: Lie, random: &mut fastrand::Rng) {
        self.faults += 1;
        self.slandered |= matches!(lie, Lie::Twice(_) | Lie::WrongType(_) | Lie::Error(..));
        let nonce = format!("lie {}", self.faults);
        let Some(open) = self.open.as_mut().filter(|open| !open.deaf) else { return };
        match lie {
            Lie::Garbage => {
                let bytes = vec![0x0f; random.usize(1..50)];
                open.unread.push_back(SentResponse { bytes, due: Due::Either, at: None, is_repeated: false });
            }
            Lie::Stranger => {
                let type_url = "type.googleapis.com/a.Stranger".into();
                let response = open.talk.response((type_url, nonce), vec![], vec![]);
                open.unread.push_back(SentResponse {
                    bytes: response.encode(),
                    due: Due::Either,
                    at: None,
                    is_repeated: false,
                });
            }
            Lie::Noise => {
                let bytes = match random.bool() {
                    true => (0..random.usize(0..50)).map(|_| random.u8(..)).collect(),
                    false => {
                        let type_url = "type.googleapis.com/a.Stranger".into();
                        open.talk.response((type_url, String::new()), vec![], vec![]).encode()
                    }
                };
                open.unread.push_back(SentResponse { bytes, due: Due::Either, at: None, is_repeated: false });
            }
            Lie::Repeat => {
                open.unread.extend(open.last.clone().map(|sent| SentResponse { is_repeated: true, ..sent }));
                // What it says is gone may have been asked for since.
                open.lied |= open.talk.is_delta();
            }
            Lie::Twice(ty) => {
                let name = open.any_name(ty, random);
                let resources = vec![lie_about(ty, &name); 2];
                open.lie((ty, nonce), resources, Due::Nack);
            }
            Lie::WrongType(ty) => {
                let name = open.any_name(ty, random);
                let (_, other) = lie_about(ty.other(), &name);
                open.lie((ty, nonce), vec![(name, other)], Due::Nack);
            }
            Lie::Error(ty, code) => self.deny((ty, nonce), code, random),
        }
    }

    /// It says that it cannot give one of its resources, and gives the others.
    fn deny(&mut self, (ty, nonce): (Ty, String), code: u8, random: &mut fastrand::Rng) {
        let uri = self.uri();
        let now = self.store.get(ty.url());
        let Some(open) = self.open.as_mut().filter(|open| open.dialogue.is_requested(ty.url())) else {
            return;
        };
        let name = open.any_name(ty, random);
        let subscribed = open.talk.subscribed(ty.url());
        let gives_all = subscribed.contains(&"*") || self.settings.behavior.unsolicited_resources;
        let is_subscribed = |name: &str| gives_all || subscribed.contains(&name);
        let given = now.iter().filter(|(other, _)| *other != name && is_subscribed(other));
        let any = |stored: &Stored| Any { type_url: ty.url().into(), value: stored.bytes().clone() };
        let resources = given.map(|(name, stored)| (name.to_owned(), any(stored)));
        // Where absence says nothing, they are sent already.
        let resources: Vec<_> = resources.filter(|_| !open.talk.is_delta()).collect();
        let code = [5, 7, 14, 13][usize::from(code) % 4];
        let error = ResourceError {
            resource_name: Some(ResourceName { name: name.clone(), ..Default::default() }),
            error_detail: Some(Status { code, message: format!("denied by {uri}"), details: vec![] }),
        };
        let response = open.talk.response((ty.url().into(), nonce), resources, vec![error]);
        open.talk.note_sent(&response);
        open.lied = true;
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

    fn lie(&mut self, (ty, nonce): (Ty, String), resources: Vec<(String, Any)>, due: Due) {
        if !self.dialogue.is_requested(ty.url()) {
            return;
        }
        let response = self.talk.response((ty.url().into(), nonce), resources, vec![]);
        self.talk.note_sent(&response);
        self.send(&response, due);
    }

    fn any_name(&self, ty: Ty, random: &mut fastrand::Rng) -> String {
        let subscribed: Vec<_> =
            self.talk.subscribed(ty.url()).into_iter().filter(|name| *name != "*").collect();
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

/// What nobody must ever see.
fn lie_about(ty: Ty, name: &str) -> (String, Any) {
    let any = match ty {
        Ty::Full => any::<Full>(name, "lie"),
        Ty::Part => any::<Part>(name, "lie"),
    };
    (name.to_owned(), any)
}
