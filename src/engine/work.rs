use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;

use super::Engine;
use crate::{
    cache::Entry,
    error::{Blame, Code, WatchError, short_type},
    name::ResourceName,
    protocol::{
        Body, EntryId, Envelope, Item, Phase, ServerId, Span, StreamId, SubId, TypeId, Unusable, Verdict,
        fingerprint,
    },
    resource::{Context, Invalid, ResourceType, Version},
};

/// A response that is being worked off, slice by slice, so that no step takes long.
///
/// First all names are read and located, which finds duplicates before anything is applied; then the resources are
/// compared with what is held, and parsed where they differ; at last absence is looked for, and the server is answered.
#[derive(Debug)]
pub(crate) struct Job {
    stream: StreamId,
    ty: TypeId,
    envelope: Arc<Envelope>,
    since: Instant,
    version: Version,
    /// Marks what this response speaks of.
    number: u64,
    stage: Stage,
    located: Vec<Located>,
    unknown: Unknown,
    heartbeats: usize,
    /// A name that came twice: nothing of the response counts (rule B1.14).
    duplicate: bool,
    /// Something came that has no name, so that absence proves nothing.
    nameless: bool,
    problems: Problems,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Locate(usize),
    Apply(usize),
    Finish,
}

/// A resource of the response, and the place of its name.
#[derive(Debug, Clone, Copy)]
struct Located {
    value: Span,
    /// `None` when nobody has asked for the name.
    sub: Option<SubId>,
}

/// What to tell the server.
#[derive(Debug, Default)]
struct Problems {
    text: String,
}

/// The names that nobody asked for: they may be members of a wildcard, and come twice.
#[derive(Debug, Default)]
struct Unknown {
    /// The indices of names by their hash; two names with one hash are rare.
    seen: HashMap<u64, Vec<u32>>,
}

impl Job {
    pub(crate) fn new(stream: StreamId, ty: TypeId, envelope: Envelope, now: Instant) -> Self {
        let count = envelope.len();
        Self {
            stream,
            ty,
            since: now,
            version: envelope.version().into(),
            number: 0,
            stage: Stage::Locate(0),
            located: Vec::with_capacity(count),
            unknown: Unknown::default(),
            heartbeats: 0,
            duplicate: false,
            nameless: false,
            problems: Problems::default(),
            envelope: Arc::new(envelope),
        }
    }

    pub(crate) fn server(&self) -> ServerId {
        self.stream.server
    }

    pub(crate) fn ty(&self) -> TypeId {
        self.ty
    }

    /// When it came.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Whether some of it was worked on already.
    pub(crate) fn has_begun(&self) -> bool {
        self.number > 0
    }

    fn is_heartbeat(&self) -> bool {
        self.heartbeats > 0 && self.heartbeats == self.envelope.len()
    }
}

impl Engine {
    /// Works on the oldest response for a while.
    pub(crate) fn work(&mut self, now: Instant) {
        let Some(mut job) = self.jobs.pop_front() else { return };
        if job.number == 0 {
            self.counters.responses += 1;
            job.number = self.counters.responses;
        }
        match job.stage {
            Stage::Locate(from) => self.locate(&mut job, from),
            Stage::Apply(from) => self.apply(&mut job, from),
            Stage::Finish => {}
        }
        if job.stage != Stage::Finish {
            self.jobs.push_front(job);
            return;
        }
        if !job.duplicate {
            self.apply_errors(&mut job);
            self.apply_absence(&mut job, now);
            self.complete(&job);
        }
        self.conclude(job, now);
    }

    /// Reads the names of some resources, and finds their places.
    fn locate(&mut self, job: &mut Job, from: usize) {
        let to = job.envelope.len().min(from + NAMES_PER_STEP);
        let (ty, envelope) = (self.types[job.ty.index()], job.envelope.clone());
        for index in from..to {
            let Item { wrapper_name, body } = envelope.item(index);
            let value = match body {
                Body::Resource(value) => value,
                Body::Heartbeat => {
                    job.heartbeats += 1;
                    Span::default()
                }
                Body::Unusable(unusable) => {
                    job.nameless = true;
                    let reason = unusable_reason(unusable, &envelope);
                    job.problems.add(&format_args!("resources[{index}]"), &reason);
                    continue;
                }
            };
            match name_of(ty, &envelope, (wrapper_name, value)) {
                Ok(name) => self.place(job, index, (&name, value, matches!(body, Body::Resource(_)))),
                Err(invalid) => {
                    job.nameless = true;
                    job.problems.add(&format_args!("resources[{index}]"), &invalid);
                }
            }
        }
        job.stage = match to == job.envelope.len() {
            true if job.duplicate => Stage::Finish,
            true => Stage::Apply(0),
            false => Stage::Locate(to),
        };
    }

    fn place(&mut self, job: &mut Job, index: usize, (name, value, is_resource): (&str, Span, bool)) {
        let peer = &mut self.servers[job.stream.server.0 as usize];
        let guess = peer.of_type(job.ty).order.get(index).copied();
        let Some(interest) = peer.machine.interest(job.ty) else { return };
        let guess = guess.filter(|sub| interest.get(*sub).is_some_and(|sub| *sub.name == *name));
        let sub = guess.or_else(|| interest.find(name));
        let twice = match sub.and_then(|sub| interest.get_mut(sub)) {
            Some(sub) => std::mem::replace(&mut sub.seen, job.number) == job.number,
            None => job.unknown.is_seen(name, index, &job.envelope, self.types[job.ty.index()]),
        };
        if twice {
            job.duplicate = true;
            job.problems.add(&format_args!("{name:?}"), &"the name is in the response twice");
        }
        if is_resource {
            job.located.push(Located { value, sub });
        }
    }

    /// Takes over some resources.
    fn apply(&mut self, job: &mut Job, from: usize) {
        let mut spent = 0;
        let mut next = from;
        while next < job.located.len() && spent < BYTES_PER_STEP {
            let Located { value, sub } = job.located[next];
            spent += match sub {
                Some(sub) => self.apply_to(job, sub, value),
                None => self.apply_unknown(job, next, value),
            };
            next += 1;
        }
        job.stage = if next == job.located.len() { Stage::Finish } else { Stage::Apply(next) };
    }

    /// Takes over a resource that somebody asked for, or that is a member already. Returns what it cost, in bytes parsed.
    fn apply_to(&mut self, job: &mut Job, id: SubId, value: Span) -> usize {
        let peer = &mut self.servers[job.stream.server.0 as usize];
        let Some(interest) = peer.machine.interest(job.ty) else { return 1 };
        let wildcard = interest.takes_all();
        // It may have gone between two steps.
        let Some(sub) = interest.get_mut(id).filter(|sub| sub.seen == job.number) else { return 1 };
        sub.phase = Phase::Answered;
        let joins = wildcard && !std::mem::replace(&mut sub.member, wildcard);
        let id = sub.entry;
        let Some(entry) = self.table.get_mut(id) else { return 1 };
        let bytes = job.envelope.bytes(value);
        if entry.bytes().is_some_and(|held| held == bytes) {
            self.counters.unchanged += 1;
            let changed = entry.on_unchanged(&job.version).into();
            self.publish_if(id, changed, joins);
            return bytes.len() / 16 + 16;
        }
        let cost = bytes.len() + 64;
        let changed = self.parse(job, (id, value));
        self.publish_if(id, changed, joins);
        cost
    }

    /// Takes over a resource that nobody asked for by name: a new member, or nothing of ours (B0.12).
    fn apply_unknown(&mut self, job: &mut Job, index: usize, value: Span) -> usize {
        let ty = self.types[job.ty.index()];
        let peer = &mut self.servers[job.stream.server.0 as usize];
        if !peer.machine.interest(job.ty).is_some_and(|interest| interest.takes_all()) {
            return 1;
        }
        let wrapper_name = job.envelope.item(index).wrapper_name;
        let Ok(name) = name_of(ty, &job.envelope, (wrapper_name, value)) else { return 1 };
        let name: Arc<str> = name.into();
        let next = self.table.next_id();
        let sub = peer.machine.insert((job.ty, ty.type_url()), name.clone(), next);
        if let Some(sub) = peer.machine.interest(job.ty).and_then(|interest| interest.get_mut(sub)) {
            sub.seen = job.number;
        }
        self.table.insert(Entry::new(name, (job.ty, job.stream.server, sub)));
        job.located[index].sub = Some(sub);
        self.apply_to(job, sub, value)
    }

    /// Parses a resource that differs from what is held. True when there is something new to see.
    fn parse(&mut self, job: &mut Job, (id, value): (EntryId, Span)) -> bool {
        self.counters.parsed += 1;
        let ty = self.types[job.ty.index()];
        let peer = &self.servers[job.stream.server.0 as usize];
        let (policy, trusted) = (peer.policy, peer.machine.server().features.trusted_xds_server);
        let cx = Context::new().with_certificate_providers(&self.providers).with_trusted_server(trusted);
        let bytes = own(&job.envelope, value);
        let parsed = ty.parse(bytes.clone(), &cx);
        let about = self.table.get(id).map(|entry| self.subject(entry));
        let (Some(entry), Some(about)) = (self.table.get_mut(id), about) else { return false };
        let news = match parsed {
            Ok(resource) => entry.on_accepted(resource, bytes, job.version.clone()),
            Err(invalid) => {
                job.problems.add(&format_args!("{} {:?}", short_type(about.type_url), about.name), &invalid);
                entry.on_rejected(WatchError::rejected(about, invalid), policy)
            }
        };
        let (sub, held) = (entry.sub, entry.is_held());
        self.set_held(job, sub, held);
        news.into()
    }

    /// Takes over what the server says of resources that it does not send (TP3).
    fn apply_errors(&mut self, job: &mut Job) {
        let errors: Vec<_> = job.envelope.errors().collect();
        for (index, error) in errors.into_iter().enumerate() {
            let place = format_args!("resource_errors[{index}]");
            let error = match error {
                Err(malformed) => {
                    job.problems.add(&place, &malformed);
                    continue;
                }
                Ok(error) if error.name.is_empty() => {
                    job.problems.add(&place, &"resource_name: unset");
                    continue;
                }
                Ok(error) if error.code == 0 => {
                    job.problems.add(&place, &"error_detail: must be non-OK");
                    continue;
                }
                Ok(error) => error,
            };
            let name = job.envelope.text(error.name);
            let name = ResourceName::canonicalize(name).unwrap_or(Cow::Borrowed(name));
            let peer = &mut self.servers[job.stream.server.0 as usize];
            let policy = peer.policy;
            let Some(interest) = peer.machine.interest(job.ty) else { continue };
            let Some(sub) = interest.find(&name).and_then(|sub| interest.get_mut(sub)) else { continue };
            (sub.seen, sub.phase) = (job.number, Phase::Answered);
            let id = sub.entry;
            let Some(entry) = self.table.get(id) else { continue };
            let code = Code::from_i32(error.code);
            let data = matches!(code, Code::NotFound | Code::PermissionDenied);
            let error =
                WatchError::new(code, Blame::Peer, self.subject(entry), job.envelope.text(error.message));
            self.tell(job, id, |entry| entry.on_server_error(error, data, policy).into());
        }
    }

    /// What a response of a full-state type does not speak of is deleted (B1.10), unless the response is a heartbeat
    /// (B1.19), or holds something without a name that may be just what is missed.
    fn apply_absence(&mut self, job: &mut Job, now: Instant) {
        if !self.types[job.ty.index()].full_state() || job.is_heartbeat() || job.nameless {
            return;
        }
        let peer = &mut self.servers[job.stream.server.0 as usize];
        let policy = peer.policy;
        let Some(interest) = peer.machine.interest(job.ty) else { return };
        let missed = interest.iter().filter(|(_, sub)| sub.seen != job.number && sub.was_there());
        let missed: Vec<_> = missed.map(|(id, sub)| (id, sub.entry)).collect();
        for (sub, id) in missed {
            let Some(entry) = self.table.get(id) else { continue };
            let uri = &self.servers[job.stream.server.0 as usize].machine.server().uri;
            let message = format!("xDS server {uri} has deleted it");
            let error = WatchError::new(Code::NotFound, Blame::Peer, self.subject(entry), message);
            if !self.peer(job.stream.server).machine.is_gone(job.ty, sub, now) {
                continue;
            }
            self.tell(job, id, |entry| entry.on_deleted(error, policy).into());
            self.dismiss(id);
        }
    }

    /// The server has told all it has of a type that is wanted as a whole.
    fn complete(&mut self, job: &Job) {
        if let Some(all) = self.peer(job.stream.server).of_type(job.ty).all.as_mut() {
            all.complete();
        }
    }

    fn conclude(&mut self, job: Job, now: Instant) {
        let server = job.stream.server;
        let fingerprint = if job.problems.text.is_empty() { 0 } else { fingerprint(&job.envelope) };
        let verdict = Verdict {
            ty: job.ty,
            stream: job.stream,
            nonce: job.envelope.nonce().to_owned(),
            version: job.version,
            error: job.problems.cut(),
            fingerprint,
        };
        let peer = self.peer(server);
        if !job.duplicate {
            peer.of_type(job.ty).order =
                job.located.iter().map(|located| located.sub.unwrap_or(NOWHERE)).collect();
        }
        peer.machine.conclude(verdict, now);
        self.settle(server);
    }

    /// Tells news of a resource, and publishes them if there are any.
    fn tell(&mut self, job: &Job, id: EntryId, news: impl FnOnce(&mut Entry) -> bool) {
        let Some(entry) = self.table.get_mut(id) else { return };
        let changed = news(entry);
        let (sub, held) = (entry.sub, entry.is_held());
        self.set_held(job, sub, held);
        if changed {
            self.publish(id);
        }
    }

    fn set_held(&mut self, job: &Job, sub: SubId, held: bool) {
        let interest = self.servers[job.stream.server.0 as usize].machine.interest(job.ty);
        if let Some(sub) = interest.and_then(|interest| interest.get_mut(sub)) {
            sub.held = held;
        }
    }
}

impl Problems {
    fn add(&mut self, place: &dyn std::fmt::Display, reason: &dyn std::fmt::Display) {
        // One bad resource more makes no difference to an error that is cut anyway.
        if self.text.len() <= LONGEST_ERROR {
            let glue = if self.text.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{glue}{place}: {reason}");
        }
    }

    /// The text, at most 4 KiB, cut between characters.
    fn cut(mut self) -> String {
        if self.text.len() > LONGEST_ERROR {
            let end = (0..=LONGEST_ERROR - CUT.len()).rev().find(|end| self.text.is_char_boundary(*end));
            self.text.truncate(end.unwrap_or(0));
            self.text.push_str(CUT);
        }
        self.text
    }
}

impl Unknown {
    /// Notes a name, and says whether it was there before.
    fn is_seen(&mut self, name: &str, index: usize, envelope: &Envelope, ty: ResourceType) -> bool {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let same = self.seen.entry(hasher.finish()).or_default();
        let named = |index: &u32| match envelope.item(*index as usize) {
            Item { wrapper_name, body: Body::Resource(value) } => {
                name_of(ty, envelope, (wrapper_name, value)).is_ok_and(|other| other == name)
            }
            Item { wrapper_name, body: Body::Heartbeat } => envelope.text(wrapper_name) == name,
            Item { body: Body::Unusable(_), .. } => false,
        };
        let seen = same.iter().any(named);
        same.push(index as u32);
        seen
    }
}

/// The name of a resource: that of the wrapper, or its own; canonical, as in rule G10.
fn name_of<'a>(
    ty: ResourceType,
    envelope: &'a Envelope,
    (wrapper, value): (Span, Span),
) -> Result<Cow<'a, str>, Invalid> {
    let name = match envelope.text(wrapper) {
        "" => ty.name(envelope.bytes(value))?,
        name => Cow::Borrowed(name),
    };
    if name.is_empty() {
        return Err(Invalid::field("name", "empty"));
    }
    if !name.starts_with("xdstp:") {
        return Ok(name);
    }
    match ResourceName::canonicalize(&name) {
        Ok(canonical) => Ok(Cow::Owned(canonical.into_owned())),
        Err(error) => Err(Invalid::field("name", error.to_string())),
    }
}

fn unusable_reason(unusable: Unusable, envelope: &Envelope) -> String {
    match unusable {
        Unusable::Malformed(malformed) => format!("not a valid message: {malformed}"),
        Unusable::WrongType(span) => {
            format!("of type {:?} in a response of type {:?}", envelope.text(span), envelope.type_url())
        }
    }
}

/// The bytes of a resource alone: a slice would keep the whole response in memory, unless it is most of it.
fn own(envelope: &Envelope, value: Span) -> Bytes {
    let bytes = envelope.bytes(value);
    if bytes.len() * 4 >= envelope.size() * 3 { envelope.slice(value) } else { Bytes::copy_from_slice(bytes) }
}

/// How many names are read in one step: some milliseconds.
const NAMES_PER_STEP: usize = 16_384;

/// How much is parsed in one step, likewise; what is only compared counts a sixteenth.
const BYTES_PER_STEP: usize = 256 << 10;

/// The longest error in a NACK, in bytes.
const LONGEST_ERROR: usize = 4096;

/// How a longer one ends.
const CUT: &str = "...(truncated)";

/// A place that no subscription has.
const NOWHERE: SubId = SubId(u32::MAX);
