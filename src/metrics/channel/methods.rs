//! The label of a call's method (CH9.11).

use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::ArcSwap;

/// Which methods have names.
pub(super) struct MethodLabels {
    /// The methods that were seen or registered, with their labels.
    known: ArcSwap<HashMap<Arc<str>, Arc<str>>>,
    /// The label of all methods without names.
    other: Arc<str>,
    /// How many are known beforehand.
    /// Registered methods do not count towards the limit of others.
    registered: usize,
    /// Which others have names, beside those of generated code.
    is_named: Option<Box<IsNamed>>,
}

/// Whether a method has a name.
type IsNamed = dyn Fn(&str) -> bool + Send + Sync;

impl MethodLabels {
    /// These.
    pub(super) fn of(names: impl Iterator<Item = Arc<str>>) -> Self {
        let known = names
            .map(|name| Arc::from(name.trim_start_matches('/')))
            .map(|name: Arc<str>| (name.clone(), name));
        let known: HashMap<_, _> = known.collect();
        let registered = known.len();
        Self { known: ArcSwap::from_pointee(known), other: OTHER.into(), registered, is_named: None }
    }

    /// Names the methods for which a function returns true.
    pub(super) fn when(is_named: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { is_named: Some(Box::new(is_named)), ..Self::default() }
    }

    /// How many methods with names are to be kept: all that are known beforehand, and some others.
    pub(super) fn limit(&self) -> usize {
        self.registered + MOST
    }

    /// The label of a method, by the path of its requests. It allocates nothing once the method is known.
    ///
    /// A method of generated code is a registered one (A66), as long as there are not too many.
    pub(super) fn label(&self, path: &str, is_generated: bool) -> Arc<str> {
        let method = path.strip_prefix('/').unwrap_or(path);
        if let Some(label) = self.known.load().get(method) {
            return label.clone();
        }
        // Without a limit, a client that makes up paths would fill the memory, whatever label they have.
        let has_room = self.known.load().len() < self.limit();
        let label = match &self.is_named {
            None if is_generated && has_room => method.into(),
            None => return self.other.clone(),
            Some(is_named) if is_named(method) => method.into(),
            Some(_) => self.other.clone(),
        };
        if has_room {
            // Of two calls at the same time, one may be forgotten, and is seen again.
            // A copy of the map for each new method, so that calls read it without a lock (CH11.1).
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
/// How many methods are kept beside those that are registered.
const MOST: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn ch9_11_methods_are_other_unless_they_are_registered() {
        let none = MethodLabels::default();
        assert_eq!(&*none.label("/shop.Cart/Add", false), "other");
        let some = MethodLabels::of(["shop.Cart/Add", "/shop.Cart/Get"].map(Arc::from).into_iter());
        assert_eq!(&*some.label("/shop.Cart/Add", false), "shop.Cart/Add");
        assert_eq!(&*some.label("/shop.Cart/Get", false), "shop.Cart/Get");
        assert_eq!(&*some.label("/shop.Cart/Remove", false), "other");
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
            assert_eq!(&*labels.label("/shop.Cart/Add", false), "shop.Cart/Add");
            assert_eq!(&*labels.label("/users.text/Any", false), "other");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        let first = labels.label("/shop.Cart/Add", false);
        assert!(Arc::ptr_eq(&first, &labels.label("/shop.Cart/Add", false)), "the label is made once");
        (0..2 * MOST).for_each(|number| drop(labels.label(&format!("/{number}"), false)));
        assert_eq!(labels.known.load().len(), MOST);
        assert_eq!(
            &*labels.label("/shop.New/Method", false),
            "shop.New/Method",
            "it has its name all the same"
        );
    }

    #[test]
    fn ch9_11_methods_of_generated_code_have_their_names_up_to_a_limit() {
        let labels = MethodLabels::of(["shop.Cart/Get"].map(Arc::from).into_iter());
        assert_eq!(&*labels.label("/shop.Cart/Add", true), "shop.Cart/Add");
        assert_eq!(&*labels.label("/shop.Cart/Add", false), "shop.Cart/Add", "it is known now");
        (0..2 * MOST).for_each(|number| drop(labels.label(&format!("/{number}"), true)));
        assert_eq!(labels.known.load().len(), 1 + MOST);
        assert_eq!(&*labels.label("/shop.New/Method", true), "other");
        let never = MethodLabels::when(|_| false);
        assert_eq!(&*never.label("/shop.Cart/Add", true), "other", "the application has decided");
    }
}
