//! The names of a simulated world.

use super::{
    parts::{Full, INITIAL, Part, message},
    script::Ty,
};
use crate::engine::InitialResources;

/// A resource that can be watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceId {
    pub(super) ty: Ty,
    /// A place in [`AUTHORITIES`].
    pub(super) authority: usize,
    pub(super) name: String,
}

impl ResourceId {
    /// The resource of these numbers. Where everything of a type is watched, names with an authority are of the other
    /// type, unless they are `shared` by both.
    pub(super) fn of((ty, authority, name): (Ty, u8, u8), (whole, shared): (bool, bool)) -> Self {
        let authority = usize::from(authority) % AUTHORITIES.len();
        let number = name % NAMES;
        match AUTHORITIES[authority] {
            None => Self { ty, authority, name: format!("r{number}") },
            Some(text) => {
                let ty = if whole && !shared { Ty::Part } else { ty };
                let short = ty.url().trim_start_matches("type.googleapis.com/");
                Self { ty, authority, name: format!("xdstp://{text}/{short}/r{number}") }
            }
        }
    }

    /// Initial resources of these names.
    pub(super) fn initial(names: impl Iterator<Item = Self>) -> InitialResources {
        names.fold(InitialResources::new(), |initial, Self { ty, name, .. }| {
            let message = message(&name, INITIAL);
            match ty {
                Ty::Full => initial.with_name::<Full>(name, message),
                Ty::Part => initial.with_name::<Part>(name, message),
            }
        })
    }

    /// A resource of the world of one server.
    pub(super) fn of_one(ty: Ty, name: u8) -> Self {
        Self { ty, authority: 0, name: format!("r{name}") }
    }

    /// The names of the world of several servers.
    pub(super) fn all(shares: (bool, bool)) -> impl Iterator<Item = Self> {
        let authorities = 0..AUTHORITIES.len() as u8;
        let keys = authorities.flat_map(|authority| (0..NAMES).map(move |name| (authority, name)));
        keys.flat_map(move |(authority, name)| {
            Ty::ALL.into_iter().map(move |ty| Self::of((ty, authority, name), shares))
        })
    }

    /// The resource of everything of a type that has a name.
    pub(super) fn member(name: &str) -> Self {
        let text = name.strip_prefix("xdstp://").and_then(|name| name.split('/').next());
        let authority = AUTHORITIES.iter().position(|authority| *authority == text);
        Self { ty: Ty::Full, authority: authority.expect("it is a name of the world"), name: name.to_owned() }
    }
}

/// The authority of old-style names comes first.
pub(super) const AUTHORITIES: [Option<&str>; 3] = [None, Some("a"), Some("b")];

const NAMES: u8 = 5;
