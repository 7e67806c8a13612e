use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use crate::{
    cache::Update,
    name::ResourceName,
    protocol::{Body, Envelope, Item, ServerId, Span, StreamId, SubId, TypeId},
    resource::{Invalid, ResourceType, Version},
};

/// A response that is being worked off, slice by slice, so that no step takes long.
///
/// First all names are read and located, which finds duplicates before anything is applied; then the resources are
/// compared with what is held, and parsed where they differ; at last absence is looked for, and the server is answered.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) stream: StreamId,
    pub(super) ty: TypeId,
    pub(super) envelope: Arc<Envelope>,
    since: Instant,
    pub(super) version: Version,
    /// Marks what this response speaks of.
    pub(super) number: u64,
    pub(super) stage: Stage,
    pub(super) located: Vec<Located>,
    pub(super) unknown: Unknown,
    pub(super) heartbeats: usize,
    /// A name that came twice: nothing of the response counts (rule B1.14).
    pub(super) duplicate: bool,
    /// Something came that has no name, so that absence proves nothing.
    pub(super) nameless: bool,
    pub(super) problems: Problems,
    /// For what is logged of it.
    pub(super) span: tracing::Span,
    /// How many resources could be used, and how many not.
    pub(super) valid: u64,
    pub(super) invalid: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Locate(usize),
    Apply(usize),
    Finish,
}

/// A resource of the response, and the place of its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located {
    pub(super) value: Span,
    /// The place of the resource in the response.
    pub(super) index: usize,
    /// `None` when nobody has asked for the name.
    pub(super) sub: Option<SubId>,
    /// Tells it from a later one in the same place.
    pub(super) serial: u64,
}

/// What to tell the server.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) text: String,
}

/// The names that nobody asked for: they may be members of a wildcard, and come twice.
#[derive(Debug, Default)]
pub(super) struct Unknown {
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
            span: tracing::Span::none(),
            valid: 0,
            invalid: 0,
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

    /// What it is for the resources that it speaks of.
    pub(super) fn update(&self) -> Update {
        Update { version: self.version.clone(), at: self.since }
    }

    /// Whether some of it was worked on already.
    pub(crate) fn has_begun(&self) -> bool {
        self.number > 0
    }

    pub(super) fn is_heartbeat(&self) -> bool {
        self.heartbeats > 0 && self.heartbeats == self.envelope.len()
    }
}

impl Problems {
    pub(super) fn add(&mut self, place: &dyn std::fmt::Display, reason: &dyn std::fmt::Display) {
        // One bad resource more makes no difference to an error that is cut anyway.
        if self.text.len() <= LONGEST_ERROR {
            let glue = if self.text.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{glue}{place}: {reason}");
        }
    }

    /// The text, at most 4 KiB, cut between characters.
    pub(super) fn cut(mut self) -> String {
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
    pub(super) fn is_seen(
        &mut self,
        name: &str,
        index: usize,
        envelope: &Envelope,
        ty: ResourceType,
    ) -> bool {
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
pub(super) fn name_of<'a>(
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

/// The longest error in a NACK, in bytes.
const LONGEST_ERROR: usize = 4096;

/// How a longer one ends.
const CUT: &str = "...(truncated)";
