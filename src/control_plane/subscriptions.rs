//! The subscriptions of all clients, and the changes of them in a fair order.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use imbl::{OrdMap, OrdSet, ordmap::DiffItem};
use tokio::sync::watch;

use super::{session::NameChanges, store::canonical};

/// The subscriptions of all clients of a control plane at one time. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Subscriptions {
    /// The type URLs of the names, each allocated once.
    types: OrdSet<Arc<str>>,
    /// Subscribed names by type and canonical name.
    names: OrdMap<Name, Subscribed>,
}

/// A type URL and a canonical name.
type Name = (Arc<str>, Arc<str>);

/// The state of a name with subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Subscribed {
    /// The number of streams with a subscription.
    streams: usize,
    /// The turn of the first one of them.
    turn: u64,
}

/// The turns of new names, by which each client has its share of a server that fetches resources on demand: a name comes
/// after as many names of other clients as its own client has waiting, however many theirs are (start-time fair queueing).
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    /// The turn of the last name that was yielded.
    yielded: Arc<AtomicU64>,
}

/// The last turn of a stream.
#[derive(Debug, Default)]
pub(super) struct LastTurn(u64);

impl Turns {
    /// The next turn of a stream.
    fn next(&self, last: &mut LastTurn) -> u64 {
        // CP17: a client that was quiet for long begins at the present turn, and has not saved up earlier ones.
        last.0 = last.0.max(self.yielded.load(Relaxed)) + 1;
        last.0
    }
}

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
/// It compares the latest state with the one that was yielded last, so a slow reader skips intermediate changes. Clients
/// have their turns: a client with many new names delays those of others by as many as they have themselves.
#[derive(Debug)]
pub struct SubscriptionChanges {
    /// The latest state.
    states: watch::Receiver<Subscriptions>,
    /// The turns, shared with the streams.
    turns: Turns,
    /// The state that `added` and `removed` lead to.
    compared: Subscriptions,
    /// Names to yield, by their turns.
    added: BTreeSet<(u64, Name)>,
    /// Names to yield as removed.
    removed: BTreeSet<Name>,
    /// Whether the next one is a removal, if there are both.
    is_removal_next: bool,
}

impl Subscriptions {
    /// Iterates over the type URLs and names with subscriptions, each with the number of streams.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.names.iter().map(|((type_url, name), subscribed)| (&**type_url, &**name, subscribed.streams))
    }

    /// The number of streams with a subscription to a name, which is that of a resource, of a collection, or `*`.
    ///
    /// Within [`ControlPlane::update`](super::ControlPlane::update) the number is consistent with the update: a
    /// client that subscribes to the name later receives the result of the update.
    pub fn streams(&self, type_url: &str, name: &str) -> usize {
        let key = (type_url.into(), canonical(name).into());
        self.names.get(&key).map_or(0, |subscribed| subscribed.streams)
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
        self.names.values().map(|subscribed| subscribed.streams).sum()
    }

    /// Applies the changes of a stream by one request.
    pub(super) fn apply(
        &mut self,
        type_url: &str,
        changes: &NameChanges,
        turns: &Turns,
        last: &mut LastTurn,
    ) {
        let of_type = self.type_of(type_url);
        for name in &changes.subscribed {
            let new = || Subscribed { streams: 0, turn: turns.next(last) };
            self.names.entry((of_type.clone(), name.as_str().into())).or_insert_with(new).streams += 1;
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
        // Keys are sorted by type: whether the first key from here is of the type shows whether any is.
        let first = (type_url.clone(), "".into());
        if self.names.get_next(&first).is_none_or(|((next, _), _)| next != type_url) {
            self.types.remove(type_url);
        }
    }

    /// Removes one subscription to a name.
    fn remove(&mut self, type_url: &Arc<str>, name: &str) {
        let key = (type_url.clone(), name.into());
        match self.names.get_mut(&key) {
            Some(subscribed) if subscribed.streams > 1 => subscribed.streams -= 1,
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
    /// All current names as added.
    pub(super) fn new(states: watch::Receiver<Subscriptions>, turns: Turns) -> Self {
        let compared = Subscriptions::default();
        let (added, removed) = (BTreeSet::new(), BTreeSet::new());
        let mut changes = Self { states, turns, compared, added, removed, is_removal_next: false };
        changes.compare();
        changes
    }

    /// Waits for a change; `None` when all handles of the control plane are gone.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<SubscriptionChange> {
        loop {
            // Also names of clients that came while others wait.
            if self.states.has_changed().unwrap_or(false) {
                self.compare();
            }
            if let Some(change) = self.take() {
                return Some(change);
            }
            self.states.changed().await.ok()?;
            self.compare();
        }
    }

    /// Notes the differences between the latest state and the one that was compared last.
    fn compare(&mut self) {
        let now = self.states.borrow_and_update().clone();
        for item in self.compared.names.diff(&now.names) {
            match item {
                // A change that was not yielded yet is undone by the opposite one.
                DiffItem::Add(name, subscribed) => {
                    if !self.removed.remove(name) {
                        self.added.insert((subscribed.turn, name.clone()));
                    }
                }
                DiffItem::Remove(name, subscribed) => {
                    if !self.added.remove(&(subscribed.turn, name.clone())) {
                        self.removed.insert(name.clone());
                    }
                }
                // It was removed and added again, unless only the number of streams differs.
                DiffItem::Update { old: (name, old), new: (_, new) } if old.turn != new.turn => {
                    if self.added.remove(&(old.turn, name.clone())) {
                        self.added.insert((new.turn, name.clone()));
                    }
                }
                DiffItem::Update { .. } => {}
            }
        }
        self.compared = now;
    }

    /// Takes a removal and an addition by turns.
    fn take(&mut self) -> Option<SubscriptionChange> {
        let is_removal = !self.removed.is_empty() && (self.is_removal_next || self.added.is_empty());
        self.is_removal_next = !is_removal;
        let ((type_url, name), subscribed) = match is_removal {
            true => (self.removed.pop_first()?, false),
            false => {
                let (turn, name) = self.added.pop_first()?;
                self.turns.yielded.fetch_max(turn, Relaxed);
                (name, true)
            }
        };
        Some(SubscriptionChange { type_url, name, subscribed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cp8_a_type_without_subscriptions_is_forgotten() {
        let mut all = Subscriptions::default();
        let (turns, mut last) = (Turns::default(), LastTurn::default());
        let changes = |subscribed: &[&str], unsubscribed: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            NameChanges { subscribed: owned(subscribed), unsubscribed: owned(unsubscribed) }
        };
        for number in 0..100 {
            let type_url = format!("type.googleapis.com/invented.T{number}");
            all.apply(&type_url, &changes(&["a", "b"], &[]), &turns, &mut last);
            all.apply(&type_url, &changes(&[], &["a"]), &turns, &mut last);
            assert_eq!(all.types.len(), 1);
            match number % 2 {
                0 => all.apply(&type_url, &changes(&[], &["b"]), &turns, &mut last),
                _ => all.remove_stream([(type_url.as_str(), "b")].into_iter()),
            }
            assert!(all.types.is_empty() && all.is_empty());
        }
    }

    /// A server with streams, whose changes of names are read by one reader.
    struct World {
        states: watch::Sender<Subscriptions>,
        turns: Turns,
        changes: SubscriptionChanges,
    }

    impl World {
        fn new() -> Self {
            let (states, turns) = (watch::Sender::new(Subscriptions::default()), Turns::default());
            let changes = SubscriptionChanges::new(states.subscribe(), turns.clone());
            Self { states, turns, changes }
        }

        fn change(&self, last: &mut LastTurn, subscribed: &[String], unsubscribed: &[String]) {
            let changes =
                NameChanges { subscribed: subscribed.to_vec(), unsubscribed: unsubscribed.to_vec() };
            self.states.send_modify(|all| all.apply("T", &changes, &self.turns, last));
        }

        /// Yields so many changes, with a mark.
        async fn take(&mut self, count: usize) -> Vec<String> {
            let mut taken = Vec::new();
            while taken.len() < count {
                let change = self.changes.next().await.unwrap();
                taken.push(format!("{}{}", if change.subscribed { '+' } else { '-' }, change.name));
            }
            taken
        }

        fn is_empty(&mut self) -> bool {
            self.changes.compare();
            self.changes.take().is_none()
        }
    }

    fn names(prefix: char, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{prefix}{number:05}")).collect()
    }

    #[tokio::test]
    async fn cp17_a_client_with_many_names_delays_those_of_others_by_as_many_as_they_have() {
        let mut world = World::new();
        let (mut greedy, mut modest) = (LastTurn::default(), LastTurn::default());
        world.change(&mut greedy, &names('a', 50_000), &[]);
        world.take(1_000).await;
        world.change(&mut modest, &names('z', 3), &[]);
        let taken = world.take(7).await;
        assert!(names('z', 3).iter().all(|name| taken.contains(&format!("+{name}"))), "{taken:?}");
        // Another request of the first one, before its names have been yielded, comes after them.
        world.change(&mut greedy, &names('0', 1), &[]);
        world.change(&mut modest, &names('y', 1), &[]);
        let taken = world.take(2).await;
        assert!(taken.contains(&"+y00000".to_owned()), "{taken:?}");
        // So are names that were let go.
        world.change(&mut greedy, &[], &names('a', 900));
        world.change(&mut modest, &names('x', 1), &[]);
        let taken = world.take(4).await;
        assert!(taken.contains(&"+x00000".to_owned()), "{taken:?}");
    }

    #[tokio::test]
    async fn names_that_come_and_go_before_they_are_yielded_are_not() {
        let mut world = World::new();
        let mut last = LastTurn::default();
        let (a, b) = (names('a', 1), names('b', 1));
        world.change(&mut last, &[a.clone(), b.clone()].concat(), &[]);
        assert_eq!(world.take(1).await, ["+a00000"]);
        world.change(&mut last, &[], &b);
        assert!(world.is_empty());
        world.change(&mut last, &b, &[]);
        world.change(&mut last, &[], &b);
        world.change(&mut last, &b, &[]);
        assert_eq!(world.take(1).await, ["+b00000"]);
        // A name that was yielded, and is let go and comes again before that is yielded.
        for is_compared in [false, true] {
            world.change(&mut last, &[], &a);
            if is_compared {
                world.changes.compare();
            }
            world.change(&mut last, &a, &[]);
            world.changes.compare();
            assert!(world.is_empty());
        }
    }
}
