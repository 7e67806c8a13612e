//! A map of what others keep alive.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    sync::{Arc, Weak},
};

/// Values that do not keep what they refer to. Those whose referents are gone are removed when the number of entries has doubled since the
/// last time, so that many insertions cost as much each as few.
#[derive(Debug)]
pub(super) struct WeakMap<K, V> {
    entries: BTreeMap<K, V>,
    /// The number of entries at which the next ones are removed.
    sweep_at: usize,
}

/// The values of a [`WeakMap`].
pub(super) trait Referent {
    /// Whether the value is used outside of the map.
    fn is_alive(&self) -> bool;
}

impl<T> Referent for Weak<T> {
    fn is_alive(&self) -> bool {
        self.strong_count() > 0
    }
}

/// An unused value is kept until the next sweep, so that values that are used by turns are not made anew each time.
impl<T> Referent for Arc<T> {
    fn is_alive(&self) -> bool {
        Self::strong_count(self) > 1
    }
}

impl<K: Ord, V: Referent> WeakMap<K, V> {
    /// Returns the value of a key, also if it is no longer used.
    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    /// Iterates in the order of the keys, over unused values as well.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// Iterates in the order of the keys, over unused values as well.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }

    /// Sets the value of a key, and removes unused values if they may be many.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.entries.insert(key, value);
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, value| value.is_alive());
            self.sweep_at = 2 * self.entries.len().max(SMALL);
        }
    }
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), sweep_at: 2 * SMALL }
    }
}

/// So few entries are not worth a sweep.
const SMALL: usize = 8;

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    /// Counts how often it is looked at.
    struct Counted(Weak<usize>, Rc<Cell<usize>>);

    impl Referent for Counted {
        fn is_alive(&self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0.is_alive()
        }
    }

    #[test]
    fn an_insertion_costs_the_same_however_many_entries_live() {
        for living in [1, 15, 16, 17, 1_023, 1_024, 1_025] {
            let (mut map, looks) = (WeakMap::default(), Rc::new(Cell::new(0)));
            let mut referents: Vec<_> = (0..living).map(Arc::new).collect();
            let (mut insertions, mut most) = (0, 0);
            for key in 0..5 * living + 100 {
                referents[key % living] = Arc::new(key);
                map.insert(key, Counted(Arc::downgrade(&referents[key % living]), looks.clone()));
                (insertions, most) = (insertions + 1, most.max(map.entries.len()));
            }
            assert!(looks.get() <= 2 * insertions, "{} looks for {insertions} insertions", looks.get());
            assert!(most <= 2 * living.max(SMALL), "{most} entries of {living}");
            assert!(referents.iter().all(|it| map.get(&**it).is_some_and(Counted::is_alive)));
        }
    }

    #[test]
    fn another_value_of_a_key_is_no_further_entry() {
        let (mut map, one, other) = (WeakMap::default(), Arc::new(1), Arc::new(2));
        for it in [&one, &other, &one, &other] {
            map.insert("key", Arc::downgrade(it));
        }
        assert_eq!(map.values().filter_map(Weak::upgrade).collect::<Vec<_>>(), [other]);
    }
}
