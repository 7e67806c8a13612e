//! Matchers of strings, headers, paths, addresses and domains, and fractions of requests.
//!
//! Each is validated when it is parsed. Matching does not allocate, and regular expressions take linear time.
//!
//! ```
//! use xdskit::resource::{
//!     Invalid,
//!     matcher::{Cidr, DomainPattern, Regex},
//! };
//!
//! fn main() -> Result<(), Invalid> {
//!     assert!(Regex::new("/carts/[0-9]+")?.matches("/carts/17"));
//!     assert!(Cidr::new([10, 9, 9, 9].into(), 8).contains([10, 0, 0, 1].into()));
//!     let all = DomainPattern::new("*.example")?;
//!     assert!(DomainPattern::new("shop.example")?.fit("shop.example") > all.fit("shop.example"));
//!     Ok(())
//! }
//! ```

mod cidr;
mod domain;
mod fraction;
mod header;
mod path;
mod re2;
mod regex;
mod string;
mod trie;

pub use self::{
    cidr::Cidr,
    domain::{DomainPattern, Fit},
    fraction::{Denominator, Fraction},
    header::{HeaderCondition, HeaderMatcher},
    path::{PathMatcher, PathPattern},
    regex::{Regex, RegexLimits},
    string::{StringMatcher, StringPattern},
};

pub(super) use self::{
    domain::DomainKind,
    regex::{compile, with_regex_budget},
    trie::{Span, Trie},
};

use super::Invalid;

/// Rules M2 to M4.
fn non_empty(field: &str, text: String) -> Result<Box<str>, Invalid> {
    if text.is_empty() { Err(Invalid::field(field, "must not be empty")) } else { Ok(text.into()) }
}

/// Whether a flag is unset, and is left out of the JSON form.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod tests;
