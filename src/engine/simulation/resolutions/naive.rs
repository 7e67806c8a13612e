//! The rules of a resolution as one would write them down: without increments, and over again each time.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::{Host, Spec};

/// What a cluster leads to.
#[derive(Default)]
pub(super) struct Flat {
    /// The clusters with endpoints, each at its first place.
    pub(super) leaves: Vec<String>,
    /// All reached clusters, the top among them.
    pub(super) reached: BTreeSet<String>,
    /// The first chain of aggregates that is longer than allowed.
    pub(super) too_deep: Option<Vec<String>>,
}

/// Walks down from a cluster (A37-4).
pub(super) fn flatten<'a>(top: &str, look: impl Fn(&str) -> Option<&'a Spec>) -> Flat {
    let mut flat = Flat::default();
    visit(top, &mut Vec::new(), &mut flat, &look);
    flat
}

fn visit<'a>(name: &str, above: &mut Vec<String>, flat: &mut Flat, look: &dyn Fn(&str) -> Option<&'a Spec>) {
    if flat.reached.contains(name) {
        return;
    }
    if above.len() == 16 {
        flat.too_deep.get_or_insert_with(|| above.clone());
        return;
    }
    flat.reached.insert(name.to_owned());
    match look(name) {
        Some(Spec::Aggregate(children)) => {
            above.push(name.to_owned());
            for child in children {
                visit(child, above, flat, look);
            }
            above.pop();
        }
        Some(Spec::Eds(_) | Spec::Dns(..)) => flat.leaves.push(name.to_owned()),
        Some(
            Spec::Rds(_) | Spec::Inline(_) | Spec::Socket | Spec::Routes(_) | Spec::Endpoints | Spec::Bad,
        )
        | None => {}
    }
}

/// What several clusters lead to, each by itself; and those that stand in a chain that is too long.
pub(super) fn flatten_all<'a, 'b>(
    roots: impl IntoIterator<Item = &'b String>,
    look: impl Fn(&str) -> Option<&'a Spec>,
) -> (BTreeMap<String, Flat>, BTreeSet<String>) {
    let mut open: Vec<String> = Vec::new();
    let mut too_deep = BTreeSet::new();
    for root in roots {
        let flat = flatten(root, &look);
        too_deep.extend(flat.too_deep.into_iter().flatten());
        open.extend(flat.reached);
    }
    let reached = open.into_iter().collect::<BTreeSet<_>>();
    let flats = reached.into_iter().map(|name| {
        let flat = flatten(&name, &look);
        (name, flat)
    });
    (flats.collect(), too_deep)
}

/// The virtual host for an authority: its own, or that for all.
pub(super) fn choose<'a>(hosts: &'a [Host], authority: &str) -> Option<&'a Host> {
    let of = |domain: &str| hosts.iter().find(|host| host.domain == domain);
    of(authority).or_else(|| of("*"))
}
