use std::{collections::VecDeque, sync::Arc};

use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use tokio::sync::watch;

use super::{session::NameChanges, store::canonical};

/// The subscriptions of all clients of a control plane at one time. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Subscriptions {
    types: OrdSet<Arc<str>>,
    /// By type and canonical name: the number of streams with a subscription.
    names: OrdMap<Name, usize>,
}

type Name = (Arc<str>, Arc<str>);

/// A name that gained its first subscription, or lost its last one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionChange {
    /// The v3 type URL.
    pub type_url: Arc<str>,
    /// The canonical name of a resource or a collection, or `*` for the wildcard.
    pub name: Arc<str>,
    /// Whether at least one client is subscribed now.
    pub subscribed: bool,
}

/// The changes of all clients' subscriptions: first all subscribed names, then each that is added or removed. Created
/// by [`ControlPlane::subscription_changes`](super::ControlPlane::subscription_changes).
///
/// It compares the latest state with the one that was yielded last, so a slow reader skips intermediate changes.
#[derive(Debug)]
pub struct SubscriptionChanges {
    states: watch::Receiver<Subscriptions>,
    notified: Subscriptions,
    pending: VecDeque<SubscriptionChange>,
}

impl Subscriptions {
    /// Iterates over the type URLs and names with subscriptions, each with the number of streams.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.names.iter().map(|((type_url, name), streams)| (&**type_url, &**name, *streams))
    }

    /// The number of streams with a subscription to a name, which is that of a resource, of a collection, or `*`.
    ///
    /// Within [`ControlPlane::update`](super::ControlPlane::update) the number is consistent with the update: a
    /// client that subscribes to the name later receives the result of the update.
    pub fn streams(&self, type_url: &str, name: &str) -> usize {
        let key = (type_url.into(), canonical(name).into());
        self.names.get(&key).copied().unwrap_or_default()
    }

    /// The number of subscribed names, however many clients subscribe to each.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of subscriptions, in which each name counts once per stream. Takes time linear in the names.
    pub fn total(&self) -> usize {
        self.names.values().sum()
    }

    pub(super) fn apply(&mut self, type_url: &str, changes: &NameChanges) {
        let of_type = self.type_of(type_url);
        for name in &changes.subscribed {
            *self.names.entry((of_type.clone(), name.as_str().into())).or_default() += 1;
        }
        changes.unsubscribed.iter().for_each(|name| self.remove(&of_type, name));
        self.forget_if_unused(&of_type);
    }

    /// Removes all subscriptions of a stream that has ended.
    pub(super) fn remove_stream<'a>(&mut self, names: impl Iterator<Item = (&'a str, &'a str)>) {
        for (type_url, name) in names {
            let of_type = self.type_of(type_url);
            self.remove(&of_type, name);
            self.forget_if_unused(&of_type);
        }
    }

    /// Forgets a type without names, since clients may invent any number of types.
    fn forget_if_unused(&mut self, type_url: &Arc<str>) {
        let first = (type_url.clone(), "".into());
        if self.names.get_next(&first).is_none_or(|((next, _), _)| next != type_url) {
            self.types.remove(type_url);
        }
    }

    fn remove(&mut self, type_url: &Arc<str>, name: &str) {
        let key = (type_url.clone(), name.into());
        match self.names.get_mut(&key) {
            Some(streams) if *streams > 1 => *streams -= 1,
            Some(_) => drop(self.names.remove(&key)),
            None => {}
        }
    }

    /// Shares one allocation between all names of a type.
    fn type_of(&mut self, type_url: &str) -> Arc<str> {
        if let Some(known) = self.types.get(type_url) {
            return known.clone();
        }
        let of_type: Arc<str> = type_url.into();
        self.types.insert(of_type.clone());
        of_type
    }
}

impl SubscriptionChanges {
    pub(super) fn new(states: watch::Receiver<Subscriptions>) -> Self {
        Self { states, notified: Subscriptions::default(), pending: VecDeque::new() }
    }

    /// Waits for a change; `None` when all handles of the control plane are gone.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<SubscriptionChange> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            let now = self.states.borrow_and_update().clone();
            let change = |(type_url, name): &Name, subscribed| {
                let (type_url, name) = (type_url.clone(), name.clone());
                Some(SubscriptionChange { type_url, name, subscribed })
            };
            self.pending.extend(self.notified.names.diff(&now.names).filter_map(|item| match item {
                DiffItem::Add(name, _) => change(name, true),
                DiffItem::Remove(name, _) => change(name, false),
                DiffItem::Update { .. } => None,
            }));
            self.notified = now;
            if self.pending.is_empty() {
                self.states.changed().await.ok()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cp8_a_type_without_subscriptions_is_forgotten() {
        let mut all = Subscriptions::default();
        let changes = |subscribed: &[&str], unsubscribed: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            NameChanges { subscribed: owned(subscribed), unsubscribed: owned(unsubscribed) }
        };
        for number in 0..100 {
            let type_url = format!("type.googleapis.com/invented.T{number}");
            all.apply(&type_url, &changes(&["a", "b"], &[]));
            all.apply(&type_url, &changes(&[], &["a"]));
            assert_eq!(all.types.len(), 1);
            match number % 2 {
                0 => all.apply(&type_url, &changes(&[], &["b"])),
                _ => all.remove_stream([(type_url.as_str(), "b")].into_iter()),
            }
            assert!(all.types.is_empty() && all.is_empty());
        }
    }
}
