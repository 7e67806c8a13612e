//! The clusters below an aggregate, in the order of preference.
//!
//! A traversal begins anew for each aggregate, so that the leaves of one do not depend on which others a route names as well.
//! In other implementations one traversal goes through all clusters of a tree, and an aggregate loses a leaf that was visited
//! before.

use std::{collections::BTreeSet, sync::Arc};

/// The maximum depth of clusters above each other, the topmost and the leaf among them (A37-4). A longer chain is an error of
/// each aggregate in it, and not of the target: other routes go on.
pub(super) const MAX_DEPTH: usize = 16;

/// The part of a cluster's state that matters to the aggregates above it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child<'a> {
    /// A cluster with endpoints of its own.
    Leaf,
    /// An aggregate with these children, in order.
    Aggregate(&'a [Arc<str>]),
    /// A cluster that does not exist, or whose state is not known yet. The two are the same here: an aggregate that waits for
    /// the state of a child is not linked, and one that is shown skips it (A74-5).
    Nothing,
}

/// The clusters below an aggregate, in depth-first order by the first place of each cluster, without missing ones
/// (A37-4, A74-5).
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    /// The clusters with endpoints, in order.
    pub(super) leaves: Vec<&'a Arc<str>>,
    /// All visited clusters, itself first; none deeper than the limit. Aggregates wait for these, and these are watched.
    pub(super) reached: Vec<&'a Arc<str>>,
    /// The first chain of aggregates that goes deeper, from the topmost. `None` if everything is within the limit.
    pub(super) too_deep: Option<Vec<&'a Arc<str>>>,
}

/// Traverses the clusters below one.
///
/// `look` decides which configurations count: the latest ones, or those that are shown. It takes time for each cluster below,
/// whatever the number of paths that lead there.
pub(super) fn flatten<'a>(top: &'a Arc<str>, look: impl Fn(&'a str) -> Child<'a>) -> Flat<'a> {
    let mut traversal = Traversal { look, seen: BTreeSet::new(), chain: Vec::new(), flat: Flat::default() };
    traversal.visit(top);
    traversal.flat
}

struct Traversal<'a, F> {
    /// What a name stands for.
    look: F,
    /// The names that were visited. A ring ends here as a duplicate does (F5).
    seen: BTreeSet<&'a str>,
    /// The aggregates from the top to the current name.
    chain: Vec<&'a Arc<str>>,
    /// The result so far.
    flat: Flat<'a>,
}

impl<'a, F: Fn(&'a str) -> Child<'a>> Traversal<'a, F> {
    /// Visits a cluster and all below it, each cluster once.
    fn visit(&mut self, name: &'a Arc<str>) {
        // Before the depth is checked: a cluster that has a place higher up is not too deep on another path.
        if self.seen.contains(&**name) {
            return;
        }
        if self.chain.len() == MAX_DEPTH {
            self.flat.too_deep.get_or_insert_with(|| self.chain.clone());
            return;
        }
        // Before the children are visited, which may lead back to it.
        self.seen.insert(name);
        self.flat.reached.push(name);
        match (self.look)(name) {
            Child::Leaf => self.flat.leaves.push(name),
            Child::Aggregate(children) => {
                self.chain.push(name);
                children.iter().for_each(|child| self.visit(child));
                self.chain.pop();
            }
            Child::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Mesh = BTreeMap<String, Vec<Arc<str>>>;

    fn mesh(aggregates: &[(&str, &[&str])]) -> Mesh {
        let names = |children: &[&str]| children.iter().map(|child| (*child).into()).collect();
        aggregates.iter().map(|(name, children)| ((*name).to_owned(), names(children))).collect()
    }

    /// Names in capitals do not exist; others that are no aggregates are leaves.
    fn look<'a>(mesh: &'a Mesh, name: &str) -> Child<'a> {
        match mesh.get(name) {
            Some(children) => Child::Aggregate(children),
            None if name.starts_with(char::is_uppercase) => Child::Nothing,
            None => Child::Leaf,
        }
    }

    fn leaves(mesh: &Mesh, top: &str) -> Vec<String> {
        let top = top.into();
        flatten(&top, |name| look(mesh, name)).leaves.iter().map(|name| (**name).to_string()).collect()
    }

    #[test]
    fn a37_4_leaves_come_in_order_and_keep_their_first_place() {
        let mesh = mesh(&[
            ("top", &["x", "left", "y", "right"]),
            ("left", &["a", "b"]),
            ("right", &["b", "c", "x"]),
        ]);
        assert_eq!(leaves(&mesh, "top"), ["x", "a", "b", "y", "c"]);
        assert_eq!(leaves(&mesh, "right"), ["b", "c", "x"]);
        assert_eq!(leaves(&mesh, "a"), ["a"]);
    }

    #[test]
    fn a74_5_children_that_are_not_there_are_skipped() {
        let mesh = mesh(&[("top", &["Gone", "a", "side"]), ("side", &["Gone", "Lost"])]);
        assert_eq!(leaves(&mesh, "top"), ["a"]);
        assert_eq!(leaves(&mesh, "side"), [""; 0]);
    }

    #[test]
    fn f5_a_cycle_ends_where_it_began() {
        let mesh = mesh(&[("a", &["b"]), ("b", &["c", "leaf"]), ("c", &["a", "c"]), ("lost", &["lost"])]);
        assert_eq!(leaves(&mesh, "a"), ["leaf"]);
        assert_eq!(leaves(&mesh, "c"), ["leaf"]);
        assert_eq!(leaves(&mesh, "lost"), [""; 0]);
    }

    #[test]
    fn a37_4_a_chain_of_16_is_allowed_and_one_of_17_is_not() {
        let chain: Mesh = (0..16).map(|i| (format!("a{i}"), vec![format!("a{}", i + 1).into()])).collect();
        let deep: Arc<str> = "a0".into();
        let flat = flatten(&deep, |name| look(&chain, name));
        assert_eq!(flat.too_deep.map(|chain| chain.len()), Some(MAX_DEPTH));
        assert_eq!(flat.reached.len(), MAX_DEPTH, "nothing below the limit is requested");
        let fits: Arc<str> = "a1".into();
        let flat = flatten(&fits, |name| look(&chain, name));
        assert!(flat.too_deep.is_none());
        assert_eq!(flat.leaves, [&Arc::from("a16")]);
    }

    /// A second implementation of `flatten` to compare with: it follows every path from the top, and drops repeated clusters at
    /// the end.
    fn by_paths(mesh: &Mesh, name: &str, path: &mut Vec<String>, found: &mut Vec<String>) {
        if path.iter().any(|above| above == name) || path.len() > 6 {
            return;
        }
        match look(mesh, name) {
            Child::Leaf if !found.iter().any(|other| other == name) => found.push(name.to_owned()),
            Child::Leaf | Child::Nothing => {}
            Child::Aggregate(children) => {
                path.push(name.to_owned());
                children.iter().for_each(|child| by_paths(mesh, child, path, found));
                path.pop();
            }
        }
    }

    proptest! {
        #[test]
        fn leaves_are_those_of_all_paths(
            edges in proptest::collection::btree_map(
                "[a-e]",
                proptest::collection::vec("[a-hA-B]".prop_map(Arc::from), 0..5),
                0..5,
            ),
        ) {
            let mut found = Vec::new();
            by_paths(&edges, "a", &mut Vec::new(), &mut found);
            prop_assert_eq!(leaves(&edges, "a"), found);
        }
    }
}
