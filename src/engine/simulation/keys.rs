//! The names of a simulated world.

use super::script::Ty;

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
