use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The names requested from one server that are aliases of resources with another name of their own (B2.19).
///
/// A server sends a resource under its own name as well, and removes it by that alone.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// The own name behind each alias.
    own: BTreeMap<Arc<str>, Arc<str>>,
    /// The aliases by own name.
    of: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Aliases {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Maps a name to the resource of this own name from now on, and to no other.
    pub(crate) fn record(&mut self, alias: &str, own: &str) {
        if self.own.get(alias).is_some_and(|known| **known == *own) {
            return;
        }
        // An alias may move to another resource, whose removal must then end it, and not that of the one before.
        self.forget(alias);
        let (alias, own): (Arc<str>, Arc<str>) = (alias.into(), own.into());
        self.of.entry(own.clone()).or_default().insert(alias.clone());
        self.own.insert(alias, own);
    }

    /// Ends the mapping of a name.
    pub(crate) fn forget(&mut self, alias: &str) {
        let Some(own) = self.own.remove(alias) else { return };
        if let Some(aliases) = self.of.get_mut(&own) {
            aliases.remove(alias);
            if aliases.is_empty() {
                self.of.remove(&own);
            }
        }
    }

    /// Whether a name is an alias of a resource with another name of its own.
    pub(crate) fn is_alias(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }

    /// The aliases of the resource with this own name.
    pub(crate) fn of(&self, own: &str) -> impl Iterator<Item = &Arc<str>> {
        self.of.get(own).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_resource_at_a_time() {
        let mut aliases = Aliases::default();
        let of = |aliases: &Aliases, own| aliases.of(own).map(ToString::to_string).collect::<Vec<_>>();
        aliases.record("a", "x");
        aliases.record("b", "x");
        aliases.record("b", "x");
        assert_eq!((of(&aliases, "x"), aliases.is_alias("a")), (vec!["a".into(), "b".into()], true));
        aliases.record("a", "y");
        assert_eq!((of(&aliases, "x"), of(&aliases, "y")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        aliases.forget("a");
        aliases.forget("b");
        aliases.forget("c");
        assert!(aliases.is_empty() && aliases.of.is_empty() && !aliases.is_alias("a"));
    }
}
