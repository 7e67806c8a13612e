//! The names of a simulated world.

use super::script::Ty;

/// A resource that can be watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) ty: Ty,
    /// A place in [`AUTHORITIES`].
    pub(super) authority: usize,
    pub(super) name: String,
}

impl Key {
    /// The resource of these numbers. Where everything of a type is watched, names with an authority are of the other
    /// type, since it is for a server to say whether they belong to everything.
    pub(super) fn of((ty, authority, name): (Ty, u8, u8), whole: bool) -> Self {
        let authority = usize::from(authority) % AUTHORITIES.len();
        let number = name % NAMES;
        match AUTHORITIES[authority] {
            None => Self { ty, authority, name: format!("r{number}") },
            Some(text) => {
                let ty = if whole { Ty::Part } else { ty };
                let short = ty.url().trim_start_matches("type.googleapis.com/");
                Self { ty, authority, name: format!("xdstp://{text}/{short}/r{number}") }
            }
        }
    }
}

/// The authority of old-style names comes first.
pub(super) const AUTHORITIES: [Option<&str>; 3] = [None, Some("a"), Some("b")];

const NAMES: u8 = 5;
