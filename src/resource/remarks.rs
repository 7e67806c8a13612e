//! What is not used of an accepted resource, so that nothing is left out without a trace: the parts that validation has left
//! out, and the fields that channels do not execute.

use std::{cell::RefCell, collections::BTreeSet, fmt, mem, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{Invalid, unexecuted::Table};
use crate::{error::shortened, escape::Escaped};

/// What is not used of an accepted resource.
///
/// Clients accept more than they use: a locality without a weight, an optional HTTP filter of an unknown type, the timeout of a
/// route. What that is stands here, and the tools show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Remarks {
    /// `None` if there are none, as of most resources.
    inner: Option<Arc<Inner>>,
}

/// The remarks of a resource that has any; shared by the clones of the resource.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inner {
    /// Parts that were left out.
    left_out: Box<[LeftOut]>,
    /// Fields without effect.
    not_executed: Box<[&'static str]>,
}

/// A part of a resource that was accepted without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// The path of the field, such as `endpoints[1]`.
    pub path: Box<str>,
    /// The reason, up to 200 bytes.
    pub reason: Box<str>,
}

impl Remarks {
    /// Returns the parts that were left out, in the order of the resource: 64 of them at most, and the number of further ones in
    /// a last entry without a path.
    pub fn left_out(&self) -> &[LeftOut] {
        self.inner.as_ref().map_or(&[], |inner| &inner.left_out)
    }

    /// Returns the fields that the resource has and channels do not execute, sorted: the name of the message and of the field, such
    /// as `RouteAction.timeout`. Applications with load balancing of their own may use them.
    pub fn not_executed(&self) -> &[&'static str] {
        self.inner.as_ref().map_or(&[], |inner| &inner.not_executed)
    }

    /// Adds a part that is left out after the resource was parsed; beyond the limit it is not added.
    pub(crate) fn leave_out(&mut self, part: Invalid) {
        if self.left_out().len() >= MAX_LEFT_OUT {
            return;
        }
        let part = LeftOut { path: part.path().into(), reason: shortened(part.reason(), MAX_REASON).into() };
        let left_out = self.left_out().iter().cloned().chain([part]).collect();
        self.inner = Some(Arc::new(Inner { left_out, not_executed: self.not_executed().into() }));
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.is_none()
    }
}

impl fmt::Debug for Remarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Some(inner) => inner.fmt(f),
            None => f.write_str("Remarks"),
        }
    }
}

impl Serialize for Remarks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut remarks = serializer.serialize_struct("Remarks", 2)?;
        if self.left_out().is_empty() {
            remarks.skip_field("left_out")?;
        } else {
            remarks.serialize_field("left_out", self.left_out())?;
        }
        if self.not_executed().is_empty() {
            remarks.skip_field("not_executed")?;
        } else {
            remarks.serialize_field("not_executed", self.not_executed())?;
        }
        remarks.end()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", Escaped(&self.path))?;
        }
        Escaped(&self.reason).fmt(f)
    }
}

/// Parses a resource, and collects what is not used of it. The collection is per thread, since remarks may come from anywhere in
/// the resource.
pub(super) fn collect<T>(parse: impl FnOnce() -> Result<T, Invalid>) -> Result<(T, Remarks), Invalid> {
    struct Outer(Option<Collection>);

    impl Drop for Outer {
        fn drop(&mut self) {
            CURRENT.replace(self.0.take());
        }
    }

    let outer = Outer(CURRENT.replace(Some(Collection::default())));
    // On an error or a panic, `Outer` restores the collection of the resource around this one.
    let parsed = parse()?;
    let collected = CURRENT.replace(None).unwrap_or_default();
    drop(outer);
    Ok((parsed, collected.finish()))
}

/// Parses an entry of a repeated field: what is left out of it has its place.
pub(super) fn within<T>(field: &'static str, index: usize, parse: impl FnOnce() -> T) -> T {
    record(|current| current.path.push((field, index)));
    let parsed = parse();
    record(|current| current.path.truncate(current.path.len().saturating_sub(1)));
    parsed
}

/// Records that a part is left out.
/// Its path is that in the message that is being parsed; the entries around it are added.
pub(super) fn leave_out(part: Invalid) {
    record(|current| current.leave_out(part));
}

/// Records the fields of a message that channels do not execute.
pub(super) fn scan(table: &'static Table, message: &[u8]) {
    record(|current| table.scan(message, &mut current.not_executed));
}

/// Records a field that channels do not execute.
pub(super) fn note_field(field: &'static str) {
    record(|current| {
        current.not_executed.insert(field);
    });
}

/// Outside of a resource nothing is recorded.
fn record(record: impl FnOnce(&mut Collection)) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current {
            record(current);
        }
    });
}

/// What has been collected of the resource that this thread parses.
#[derive(Default)]
struct Collection {
    /// The entries of repeated fields that are being parsed, the outermost first.
    path: Vec<(&'static str, usize)>,
    /// Parts that were left out.
    left_out: Vec<LeftOut>,
    /// The number of further ones.
    more: usize,
    /// Fields without effect.
    not_executed: BTreeSet<&'static str>,
}

impl Collection {
    /// Notes a part that was left out.
    fn leave_out(&mut self, part: Invalid) {
        if self.left_out.len() >= MAX_LEFT_OUT {
            self.more += 1;
            return;
        }
        let part = self.path.iter().rev().fold(part, |part, (field, index)| part.at_index(field, *index));
        let part = LeftOut { path: part.path().into(), reason: shortened(part.reason(), MAX_REASON).into() };
        // An unusual encoding is read twice.
        if !self.left_out.contains(&part) {
            self.left_out.push(part);
        }
    }

    /// The remarks of the resource.
    fn finish(mut self) -> Remarks {
        if self.left_out.is_empty() && self.not_executed.is_empty() {
            return Remarks::default();
        }
        if self.more > 0 {
            let reason = format!("{} more parts are left out", self.more).into();
            self.left_out.push(LeftOut { path: "".into(), reason });
        }
        let not_executed = mem::take(&mut self.not_executed).into_iter().collect();
        Remarks { inner: Some(Arc::new(Inner { left_out: self.left_out.into(), not_executed })) }
    }
}

thread_local! {
    /// `None` outside of parsing.
    static CURRENT: RefCell<Option<Collection>> = const { RefCell::new(None) };
}

/// The most parts of a resource that are kept as left out.
const MAX_LEFT_OUT: usize = 64;

/// The longest reason, in bytes.
const MAX_REASON: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(parts: usize) -> Remarks {
        let parse = || {
            (0..parts)
                .for_each(|i| within("routes", i, || leave_out(Invalid::field("match", "x".repeat(1000)))));
            Ok(())
        };
        collect(parse).unwrap().1
    }

    #[test]
    fn e3_parts_are_named_with_their_place_up_to_a_limit() {
        assert!(left_out(0).is_empty());
        let most = left_out(64);
        assert_eq!((most.left_out().len(), &*most.left_out()[63].path), (64, "routes[63].match"));
        let over = left_out(70);
        assert_eq!(over.left_out().len(), 65);
        assert_eq!(over.left_out()[64].to_string(), "6 more parts are left out");
        assert!(over.left_out()[0].reason.len() <= 200);
    }

    #[test]
    fn collections_do_not_mix_whatever_happens_in_them() {
        let inner = || collect(|| Err::<(), _>(Invalid::new("bad")).inspect_err(|e| leave_out(e.clone())));
        let (_, outer) = collect(|| {
            leave_out(Invalid::field("a", "first"));
            assert!(inner().is_err());
            let panicked =
                std::panic::catch_unwind(|| collect(|| -> Result<(), Invalid> { panic!("a parser") }));
            assert!(panicked.is_err());
            leave_out(Invalid::field("b", "second"));
            Ok(())
        })
        .unwrap();
        let texts: Vec<_> = outer.left_out().iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["a: first", "b: second"]);
        // Outside of a resource there is nothing to record it in.
        leave_out(Invalid::new("nothing"));
    }

    #[test]
    fn remarks_are_short_and_have_a_json_form() {
        assert_eq!(size_of::<Remarks>(), 8);
        let (_, remarks) = collect(|| {
            leave_out(Invalid::field("a", "b"));
            note_field("Route.decorator");
            Ok(())
        })
        .unwrap();
        let json = serde_json::json!({
            "left_out": [{"path": "a", "reason": "b"}], "not_executed": ["Route.decorator"],
        });
        assert_eq!(serde_json::to_value(&remarks).unwrap(), json);
        assert_eq!(serde_json::to_value(Remarks::default()).unwrap(), serde_json::json!({}));
    }
}
