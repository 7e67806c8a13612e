//! The elements of a response whose names are located.

use crate::protocol::{Span, SubId};

/// A resource of the response, and the subscription of its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocatedResource {
    /// The bytes of the resource in the message; empty if there is none, or if it was not looked for.
    pub(super) value: Span,
    /// The index of the resource in the response; behind all of them, those of the removed names.
    pub(super) index: u32,
    /// What the response does with the name.
    pub(super) op: ResourceOp,
    /// Whether the resource came in a wrapper, which may hold more fields of it.
    pub(super) is_wrapped: bool,
    /// `None` when the name was not requested.
    pub(super) sub: Option<SubId>,
}

/// The operation of a response on a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceOp {
    /// Bytes that may be an update.
    Resource,
    /// The held resource, byte for byte. It has no wrapper; the offset of its bytes was not determined.
    Same,
    /// A redirect to another name (X20).
    Redirect,
    /// There is none (B2.14, B2.17, B2.18).
    Removed,
    /// The held resource is still valid.
    Heartbeat,
    /// Something that is no resource of the type, in a wrapper with the name.
    Unusable,
}

/// The elements of a response that are for aliases, too, until all names are known.
#[derive(Debug, Default)]
pub(super) struct AliasClaims {
    /// The elements that have aliases.
    pub(super) aliased: Vec<Claim>,
    /// The elements that confirm resources, whose aliases of earlier responses they confirm with them.
    pub(super) confirmed: Vec<Claim>,
}

/// The claim of an element to its aliases.
#[derive(Debug)]
pub(super) struct Claim {
    /// The own name of the element; empty if it stands for nothing but its aliases.
    pub(super) own: Box<str>,
    pub(super) found: LocatedResource,
}

impl LocatedResource {
    /// An element, or a removed name behind all elements, before its subscription is looked for.
    pub(super) fn new(index: usize, op: ResourceOp) -> Self {
        Self { value: Span::default(), index: index as u32, op, is_wrapped: false, sub: None }
    }
}

impl ResourceOp {
    /// Whether the server has something under the name.
    pub(super) fn is_there(self) -> bool {
        match self {
            Self::Resource | Self::Same | Self::Redirect | Self::Unusable => true,
            Self::Removed | Self::Heartbeat => false,
        }
    }
}

impl AliasClaims {
    /// Records an element with aliases.
    pub(super) fn add(&mut self, own: &str, found: LocatedResource) {
        self.aliased.push(Claim { own: own.into(), found });
    }

    /// Records an element that confirms a resource.
    pub(super) fn confirm(&mut self, own: &str, found: LocatedResource) {
        self.confirmed.push(Claim { own: own.into(), found });
    }
}
