//! The label of a call's method (CH9.11).

use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::ArcSwap;

/// Which methods have names.
pub(super) struct MethodLabels {
    /// The methods that were seen or registered, with their labels.
    known: ArcSwap<HashMap<Arc<str>, Arc<str>>>,
    other: Arc<str>,
    /// `None` if the known ones are all.
    is_named: Option<Box<IsNamed>>,
}

type IsNamed = dyn Fn(&str) -> bool + Send + Sync;

impl MethodLabels {
    /// These.
    pub(super) fn of(names: impl Iterator<Item = Arc<str>>) -> Self {
        let known = names
            .map(|name| Arc::from(name.trim_start_matches('/')))
            .map(|name: Arc<str>| (name.clone(), name));
        Self { known: ArcSwap::from_pointee(known.collect()), other: OTHER.into(), is_named: None }
    }

    /// Those for which a function returns true.
    pub(super) fn when(is_named: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { is_named: Some(Box::new(is_named)), ..Self::default() }
    }

    /// How many methods with names are to be kept: all, if they are known beforehand.
    pub(super) fn limit(&self) -> usize {
        if self.is_named.is_some() { MOST } else { usize::MAX }
    }

    /// The label of a method, by the path of its requests. It allocates nothing once the method is known.
    pub(super) fn label(&self, path: &str) -> Arc<str> {
        let method = path.strip_prefix('/').unwrap_or(path);
        if let Some(label) = self.known.load().get(method) {
            return label.clone();
        }
        let Some(is_named) = &self.is_named else { return self.other.clone() };
        let label = if is_named(method) { method.into() } else { self.other.clone() };
        if self.known.load().len() < MOST {
            // Of two calls at the same time, one may be forgotten, and is seen again.
            let mut known = HashMap::clone(&self.known.load());
            known.insert(method.into(), label.clone());
            self.known.store(Arc::new(known));
        }
        label
    }
}

impl Default for MethodLabels {
    fn default() -> Self {
        Self::of(std::iter::empty())
    }
}

impl fmt::Debug for MethodLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodLabels").field("known", &self.known.load().len()).finish_non_exhaustive()
    }
}

/// The label of methods without a name.
pub(super) const OTHER: &str = "other";
/// How many methods are kept.
const MOST: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn ch9_11_methods_are_other_unless_they_are_registered() {
        let none = MethodLabels::default();
        assert_eq!(&*none.label("/shop.Cart/Add"), "other");
        let some = MethodLabels::of(["shop.Cart/Add", "/shop.Cart/Get"].map(Arc::from).into_iter());
        assert_eq!(&*some.label("/shop.Cart/Add"), "shop.Cart/Add");
        assert_eq!(&*some.label("/shop.Cart/Get"), "shop.Cart/Get");
        assert_eq!(&*some.label("/shop.Cart/Remove"), "other");
    }

    #[test]
    fn ch9_11_a_predicate_is_asked_once_for_each_method_up_to_a_limit() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let labels = MethodLabels::when(move |method| {
            counter.fetch_add(1, Ordering::Relaxed);
            method.starts_with("shop.")
        });
        for _ in 0..3 {
            assert_eq!(&*labels.label("/shop.Cart/Add"), "shop.Cart/Add");
            assert_eq!(&*labels.label("/users.text/Any"), "other");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let first = labels.label("/shop.Cart/Add");
        assert!(Arc::ptr_eq(&first, &labels.label("/shop.Cart/Add")), "the label is made once");
        (0..2 * MOST).for_each(|number| drop(labels.label(&format!("/{number}"))));
        assert_eq!(labels.known.load().len(), MOST);
        assert_eq!(&*labels.label("/shop.New/Method"), "shop.New/Method", "it has its name all the same");
    }
}
