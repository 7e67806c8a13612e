//! A response in progress.
//!
//! It owns everything that has to survive from one step to the next. Its flags are set while names are located and resources
//! applied, and are read at the end: they decide whether absence proves something, and what the server is answered.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    super::authorities::GlobPattern,
    located::{AliasClaims, LocatedResource, ResourceOp},
    order_predictor::OrderPredictor,
    review::{Decision, Review},
    verdict::Verdict,
};
use crate::{
    cache::{ResponseBuffer, Update},
    name::ResourceName,
    protocol::{Body, EntryId, Envelope, Item, ServerId, Span, StreamId, SubId, TypeId, Unusable},
    resource::{Invalid, ResourceType, Version},
};

/// A response in progress, slice by slice, so that no step takes long.
///
/// First all names are read and located, which finds duplicates before anything is applied; then the resources are
/// compared with the held ones, and parsed where they differ; at last absence is detected, and the server is answered.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    /// The stream that it was received on, which may have ended since: then it is applied, and not answered.
    pub(super) stream: StreamId,
    pub(super) ty: TypeId,
    /// The message, sliced. Shared, since phases read it while they change the response.
    pub(super) envelope: Arc<Envelope>,
    /// The arrival time, or that of the decision of its consumers.
    since: Instant,
    /// The version of the response; empty in the incremental variant of some servers.
    pub(super) version: Version,
    /// The number that subscriptions are marked with when the response mentions them; 0 before the first step.
    pub(super) number: u64,
    pub(super) stage: Stage,
    /// The resources and removed names so far, in the order of the response; aliases behind them.
    pub(super) located: Vec<LocatedResource>,
    /// The subscription that the next element is expected to be of.
    pub(super) predictor: OrderPredictor,
    /// The names without a subscription so far, to find those that come twice.
    pub(super) unknown: Unknown,
    /// The aliases in the response, which are located behind all names.
    pub(super) aliases: AliasClaims,
    /// The number of elements without a resource.
    pub(super) heartbeats: usize,
    /// Set when the response confirms a resource that is not held: its version was rejected, or has expired.
    pub(super) outdated: bool,
    /// Set when the response contains something that was not requested before the wildcard was: so it answers that.
    pub(super) of_all: bool,
    /// The stream of the response has ended, and it confirms nothing on a later one.
    pub(super) is_late: bool,
    /// Set when something of the response is in use: what is held is not what the last accepted version stands for.
    pub(super) is_applied: bool,
    /// Set when the server considered the wildcard a name without a resource.
    pub(super) lacks_wildcard: bool,
    /// The response has only what is subscribed by name, although the wildcard was requested as `*` (B1.23).
    pub(super) is_narrow: bool,
    /// The response was sent before the server has read `*`, perhaps, although it has all names beside that (B1.23).
    pub(super) may_have_crossed_star: bool,
    /// What the consumers of the type are asked, and have decided.
    pub(super) review: Review,
    /// What the server is answered, so far.
    pub(super) verdict: Verdict,
    /// The glob that a resource of it was a member of.
    pub(super) glob: Option<MatchedGlob>,
    /// The shared buffer of the response, once a resource holds a part of it, and the entries of the parts.
    pub(super) buffer: Option<(Arc<ResponseBuffer>, Vec<EntryId>)>,
    /// For its log events.
    pub(super) span: tracing::Span,
}

/// The next step of a response. The numbers are where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// From this element on, names are read; removed names are behind all elements.
    Locate(usize),
    /// From this located resource on, it is found out what the response would change, for the consumers of the type.
    Review(usize),
    /// The consumers of the type have not decided yet.
    Held,
    /// From this located resource on, resources are compared and parsed.
    Apply(usize),
    /// Everything is applied, or nothing is to be.
    Finish,
    /// The server has its answer, and the response can be dropped.
    Done,
}

/// The glob that matched last: the names of a response mostly have the same one, so that it is searched for once.
#[derive(Debug)]
pub(super) struct MatchedGlob {
    /// What names of members look like.
    pub(super) pattern: GlobPattern,
    /// The subscription of the glob's own name at the server.
    pub(super) sub: SubId,
    /// The entry of the glob's own name, with the state of the collection as a whole.
    pub(super) entry: EntryId,
    /// The response counts as an answer to the glob already.
    pub(super) answered: bool,
    /// The glob was requested again because of this response.
    pub(super) asked_again: bool,
}

/// The names that were not requested: they may be members of a wildcard, and come twice.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// The indices of names by their hash; two names with one hash are rare.
    seen: HashMap<u64, Vec<u32>>,
}

impl PendingResponse {
    /// A received response, before its first step.
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
            predictor: OrderPredictor::default(),
            unknown: Unknown::default(),
            aliases: AliasClaims::default(),
            heartbeats: 0,
            outdated: false,
            of_all: false,
            is_late: false,
            is_applied: false,
            lacks_wildcard: false,
            is_narrow: false,
            may_have_crossed_star: false,
            review: Review::default(),
            verdict: Verdict::default(),
            glob: None,
            buffer: None,
            span: tracing::Span::none(),
            envelope: Arc::new(envelope),
        }
    }

    /// Its consumers have decided. It counts from now on: times to live do not pass while it waits.
    pub(super) fn on_decided(&mut self, decision: Decision, now: Instant) {
        self.review.decide(decision);
        (self.stage, self.since) = (Stage::Apply(0), now);
    }

    pub(crate) fn server(&self) -> ServerId {
        self.stream.server
    }

    /// The version of a resource as later requests have it: none in the state of the world, where the type has one.
    pub(super) fn requested_version<'a>(&self, update: &'a Update) -> Option<&'a Version> {
        self.envelope.is_delta().then_some(&update.version)
    }

    pub(crate) fn ty(&self) -> TypeId {
        self.ty
    }

    /// When its bytes were received, whatever it has waited for since.
    pub(super) fn arrived_at(&self) -> Instant {
        self.envelope.arrived_at.unwrap_or(self.since)
    }

    /// Its arrival time, or that of the decision of its consumers.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// The update that the response is for its resources.
    pub(super) fn update(&self) -> Update {
        Update { version: self.version.clone(), at: self.since }
    }

    /// The update that it is for one resource, whose version was `known` before. In the incremental variant the version
    /// of a response is for people (B2.31), so that an empty one stays empty.
    pub(super) fn update_of(&self, located: &LocatedResource, known: &Version) -> Update {
        let version = match self.version_of(located) {
            "" if self.envelope.is_delta() => Version::default(),
            "" => self.version.clone(),
            text if text == known.as_str() => known.clone(),
            text => text.into(),
        };
        Update { version, at: self.since }
    }

    /// The TTL of a resource.
    pub(super) fn ttl_of(&self, located: &LocatedResource) -> Option<Duration> {
        if located.is_wrapped { self.item_of(located).ttl } else { None }
    }

    /// Whether a resource was sent without a wrapper, so that its name is the one in it.
    pub(super) fn is_bare(&self, located: &LocatedResource) -> bool {
        located.op == ResourceOp::Resource && !located.is_wrapped
    }

    /// The version of a resource alone; empty if it has that of the response.
    pub(super) fn version_of(&self, located: &LocatedResource) -> &str {
        if located.is_wrapped { self.envelope.text(self.item_of(located).version) } else { "" }
    }

    /// A resource that was found unchanged, located as if it had not been compared.
    pub(super) fn again(&self, located: LocatedResource) -> LocatedResource {
        match self.item_of(&located).body {
            Body::Resource(value) => LocatedResource { value, op: ResourceOp::Resource, ..located },
            // It is a resource: its bytes are those of one.
            Body::Redirect(_) | Body::Unset | Body::Unusable(_) => located,
        }
    }

    /// The element of a located resource.
    fn item_of(&self, located: &LocatedResource) -> Item {
        self.envelope.item(located.index as usize)
    }

    /// The name of a resource that was not requested by that name; `None` for one that was, or if there is no resource.
    pub(super) fn unknown_name(&self, next: usize, ty: ResourceType) -> Option<Arc<str>> {
        let LocatedResource { value, index, op, sub, .. } = self.located[next];
        if sub.is_some() || !op.is_there() {
            return None;
        }
        let wrapper_name = self.envelope.item(index as usize).wrapper_name;
        name_of(ty, &self.envelope, wrapper_name, value).ok().map(Into::into)
    }

    /// The name of a resource as the server has written it: requests repeat that form, whatever the canonical one is (X2).
    pub(super) fn written_name(&self, next: usize, ty: ResourceType) -> Option<ResourceName> {
        let LocatedResource { value, index, .. } = self.located[next];
        let text = match self.envelope.text(self.envelope.item(index as usize).wrapper_name) {
            "" => ty.name(self.envelope.bytes(value)).ok()?,
            name => Cow::Borrowed(name),
        };
        ResourceName::parse_received(&text).ok()
    }

    /// Records an element whose name is not known.
    pub(super) fn add_nameless(&mut self, index: usize, reason: &dyn std::fmt::Display) {
        self.verdict.reject_nameless(&format_args!("resources[{index}]"), reason);
    }

    /// The reason why an element is no resource, if it is none.
    pub(super) fn unusable_reason(&self, index: usize) -> Option<String> {
        match self.envelope.item(index).body {
            Body::Unusable(Unusable::Malformed(malformed)) => {
                Some(format!("not a valid message: {malformed}"))
            }
            Body::Unusable(Unusable::WrongType(span)) => Some(format!(
                "of type {:?} in a response of type {:?}",
                self.envelope.text(span),
                self.envelope.type_url()
            )),
            Body::Resource(_) | Body::Redirect(_) | Body::Unset => None,
        }
    }

    /// Records that an element has an alias that belongs to the first one.
    pub(super) fn reject_alias(&mut self, alias: &str, first: &LocatedResource, second: &LocatedResource) {
        let first = match (first.index as usize).checked_sub(self.envelope.len()) {
            None => format!("resources[{}]", first.index),
            Some(removed) => format!("removed_resources[{removed}]"),
        };
        let place = format!("resources[{}].aliases", second.index);
        self.verdict.reject(&place, &format_args!("{alias:?} belongs to {first} of the response"));
    }

    /// Whether it is the server's answer to a wildcard request. One response is the whole answer, or where there are
    /// several, the first of them counts: the protocol does not mark the last one.
    pub(super) fn is_complete_set(&self) -> bool {
        let is_empty = self.envelope.len() == 0 && self.envelope.removed().is_empty();
        if self.verdict.is_nameless() && self.located.is_empty() {
            // Nothing of it can be told, so that it is no sign that the server has nothing.
            return false;
        }
        !self.envelope.is_delta() || self.of_all || (is_empty && self.envelope.errors().next().is_none())
    }

    /// Whether some of it was worked on already.
    pub(crate) fn has_begun(&self) -> bool {
        self.number > 0
    }

    /// Whether all elements are heartbeats. Such a response is no list of what exists (B1.19).
    pub(super) fn is_heartbeat(&self) -> bool {
        self.heartbeats > 0 && self.heartbeats == self.envelope.len()
    }
}

impl Unknown {
    /// Records a name; returns whether it was there before.
    pub(super) fn is_seen(
        &mut self,
        name: &str,
        index: usize,
        envelope: &Envelope,
        ty: ResourceType,
    ) -> bool {
        // With fixed keys: the engine has no randomness but its seed.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let same = self.seen.entry(hasher.finish()).or_default();
        let named = |index: &u32| {
            let index = *index as usize;
            if let Some(removed) = index.checked_sub(envelope.len()) {
                return canonical(envelope.text(envelope.removed()[removed]))
                    .is_ok_and(|other| other == name);
            }
            let Item { wrapper_name, body, .. } = envelope.item(index);
            match body {
                Body::Resource(value) => {
                    name_of(ty, envelope, wrapper_name, value).is_ok_and(|other| other == name)
                }
                Body::Redirect(_) | Body::Unset | Body::Unusable(_) => {
                    canonical(envelope.text(wrapper_name)).is_ok_and(|other| other == name)
                }
            }
        };
        let seen = same.iter().any(named);
        same.push(index as u32);
        seen
    }
}

/// The name of a resource: that of the wrapper, or its own; canonical, as in rule G10.
pub(super) fn name_of<'a>(
    ty: ResourceType,
    envelope: &'a Envelope,
    wrapper: Span,
    value: Span,
) -> Result<Cow<'a, str>, Invalid> {
    let name = match envelope.text(wrapper) {
        "" => ty.name(envelope.bytes(value))?,
        name => Cow::Borrowed(name),
    };
    match name {
        Cow::Borrowed(name) => canonical(name),
        Cow::Owned(name) => Ok(Cow::Owned(canonical(&name)?.into_owned())),
    }
}

/// A name that a server wrote, in canonical form (X5).
pub(super) fn canonical(name: &str) -> Result<Cow<'_, str>, Invalid> {
    if name.is_empty() {
        return Err(Invalid::field("name", "empty"));
    }
    ResourceName::canonicalize(name).map_err(|error| Invalid::field("name", error.to_string()))
}
