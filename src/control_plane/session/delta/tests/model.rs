//! Sessions with their store, and a model client that only follows responses.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// An event.
#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    Remove(u8),
    Absent(u8),
    Complete(u8),
    Fail(u8),
    Change(Vec<u8>, Vec<u8>),
    Poll,
    Deliver,
    Answer { reject: bool },
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..6u8;
    // The names of resources, the wildcard and the glob.
    let names = || proptest::collection::vec(0..8u8, 0..3);
    let step = prop_oneof![
        2 => (name.clone(), 0..3u8).prop_map(|(name, value)| Step::Set(name, value)),
        2 => name.clone().prop_map(Step::Remove),
        1 => name.clone().prop_map(Step::Absent),
        1 => (0..2u8).prop_map(Step::Complete),
        1 => name.prop_map(Step::Fail),
        3 => (names(), names()).prop_map(|(subscribe, unsubscribe)| Step::Change(subscribe, unsubscribe)),
        2 => Just(Step::Poll),
        2 => Just(Step::Deliver),
        2 => any::<bool>().prop_map(|reject| Step::Answer { reject }),
        1 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 0..60)
}

fn named(name: u8) -> String {
    match name {
        0..4 => format!("{name}"),
        4..6 => format!("xdstp://auth/T/foo/{name}?x=1&y=2"),
        6 => "*".into(),
        _ => GLOB.into(),
    }
}

fn is_member(name: &str) -> bool {
    name.starts_with("xdstp://auth/T/foo/") && name != GLOB
}

const GLOB: &str = "xdstp://auth/T/foo/*?x=1&y=2";

struct Client {
    pair: Pair,
    subscribed: BTreeSet<String>,
    /// Whether a request was sent on the stream.
    begun: bool,
    held: BTreeMap<String, (String, Vec<u8>)>,
    /// The state of the glob in the last response since its subscription.
    is_empty: Option<bool>,
    /// The response in flight.
    under_way: Option<DeltaDiscoveryResponse>,
}

impl Client {
    fn change(&mut self, subscribe: Vec<u8>, unsubscribe: Vec<u8>) {
        let subscribe: BTreeSet<_> = subscribe.into_iter().map(named).collect();
        let unsubscribe: BTreeSet<_> =
            unsubscribe.into_iter().map(named).filter(|name| !subscribe.contains(name)).collect();
        let nothing_to_begin_with = !self.begun && subscribe.is_empty();
        self.subscribed.extend(subscribe.iter().cloned());
        if subscribe.contains(GLOB) {
            self.is_empty = None;
        }
        for name in &unsubscribe {
            self.subscribed.remove(name);
        }
        self.drop_unsubscribed();
        if nothing_to_begin_with {
            // It would be the wildcard.
            return;
        }
        let names = |set: BTreeSet<String>| set.into_iter().collect();
        self.send(DeltaDiscoveryRequest {
            resource_names_subscribe: names(subscribe),
            resource_names_unsubscribe: names(unsubscribe),
            ..DeltaDiscoveryRequest::default()
        });
    }

    fn reconnect(&mut self) {
        let settings = self.pair.session.settings.clone();
        self.pair.session = DeltaSession::new(settings);
        self.pair.nonces.clear();
        self.under_way = None;
        self.begun = false;
        if self.subscribed.is_empty() {
            return;
        }
        let legacy = self.subscribed.len() == 1 && self.subscribed.contains("*");
        let subscribe = if legacy { Vec::new() } else { self.subscribed.iter().cloned().collect() };
        let versions = self.held.iter().map(|(name, (version, _))| (name.clone(), version.clone()));
        self.send(DeltaDiscoveryRequest {
            resource_names_subscribe: subscribe,
            initial_resource_versions: versions.collect(),
            ..DeltaDiscoveryRequest::default()
        });
    }

    fn covers(&self, name: &str) -> bool {
        self.subscribed.contains("*")
            || self.subscribed.contains(name)
            || (is_member(name) && self.subscribed.contains(GLOB))
    }

    fn drop_unsubscribed(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().filter(|(name, _)| self.covers(name)).collect();
    }

    fn send(&mut self, request: DeltaDiscoveryRequest) {
        self.begun = true;
        let request = DeltaDiscoveryRequest { type_url: CDS.into(), ..request };
        self.pair.handle(request);
    }

    fn answer(&mut self, reject: bool) {
        if self.under_way.is_none() && self.pair.nonces.contains_key(CDS) {
            self.pair.answer(CDS, reject.then_some("no"));
        }
    }

    fn poll(&mut self) -> bool {
        let Some(response) = self.pair.poll() else { return false };
        let sent = response.resources.len() + response.removed_resources.len();
        let limit = self.pair.session.settings.max_per_response.unwrap_or(usize::MAX);
        assert!(sent <= limit, "{sent} in a response");
        self.under_way = Some(response);
        true
    }

    fn deliver(&mut self) {
        let Some(response) = self.under_way.take() else { return };
        let mut sent = BTreeSet::new();
        for resource in response.resources {
            assert!(sent.insert(resource.name.clone()), "{} twice", resource.name);
            if self.covers(&resource.name) {
                if is_member(&resource.name) {
                    self.is_empty = Some(false);
                }
                let value = resource.resource.expect("a body").value.to_vec();
                self.held.insert(resource.name, (resource.version, value));
            }
        }
        let errors = response.resource_errors.into_iter().map(|error| error.resource_name.unwrap().name);
        for name in response.removed_resources.into_iter().chain(errors) {
            assert!(sent.insert(name.clone()), "{name} twice");
            self.held.remove(&name);
            if name == GLOB {
                self.is_empty = Some(true);
                // It reports the removal of all members (X18).
                let subscribed = self.subscribed.clone();
                let otherwise = |name: &String| subscribed.contains("*") || subscribed.contains(name);
                self.held.retain(|name, _| !is_member(name) || otherwise(name));
            }
        }
    }

    fn settle(&mut self) {
        loop {
            self.deliver();
            self.answer(false);
            if !self.poll() {
                return;
            }
        }
    }
}

proptest! {
    #[test]
    fn the_client_holds_what_it_wants_of_the_store_in_the_end(
        steps in steps(), limited: bool, ignore_initial_versions: bool, on_demand: bool,
    ) {
        let max_per_response = limited.then_some(2);
        let settings = Settings { max_per_response, ignore_initial_versions, ..Settings::default() };
        let store = Store::new().with_on_demand(on_demand);
        let pair = Pair { session: DeltaSession::new(settings), store, ..Pair::default() };
        let mut client = Client { pair, subscribed: BTreeSet::new(), begun: false, held: BTreeMap::new(), is_empty: None, under_way: None };
        for step in steps {
            match step {
                Step::Set(name, value) => client.pair.set(&[(CDS, &named(name), &format!("{name}={value}"))]),
                // In a store on demand, its state becomes unknown.
                Step::Remove(name) => client.pair.remove(CDS, &named(name)),
                Step::Absent(name) => drop(client.pair.store.update(|tx| {
                    tx.set_absent(CDS, &named(name));
                })),
                Step::Complete(collection) => drop(client.pair.store.update(|tx| {
                    tx.set_complete(CDS, &named(6 + collection));
                })),
                Step::Fail(name) => drop(client.pair.store.update(|tx| {
                    tx.set_error(CDS, &named(name), 7, "no");
                })),
                Step::Change(subscribe, unsubscribe) => client.change(subscribe, unsubscribe),
                Step::Poll => drop(client.poll()),
                Step::Deliver => client.deliver(),
                Step::Answer { reject } => client.answer(reject),
                Step::Reconnect => client.reconnect(),
            }
        }
        client.settle();
        let there = client.pair.store.get(CDS);
        client.pair.store.update(|tx| {
            let known = |name: &String| there.resource(name).is_some() || there.error(name).is_some();
            for name in (0..6).map(named).filter(|name| !known(name)) {
                tx.set_absent(CDS, &name);
            }
            tx.set_complete(CDS, "*").set_complete(CDS, GLOB);
        });
        client.settle();
        let now = client.pair.store.get(CDS);
        let covered = now.iter().filter(|(name, _)| client.covers(name));
        let expected: BTreeMap<_, _> = covered
            .map(|(name, stored)| {
                let version = client.pair.store.version(stored.version());
                (name.to_owned(), (version, stored.bytes().to_vec()))
            })
            .collect();
        if client.subscribed.contains(GLOB) && !expected.keys().any(|name| is_member(name)) {
            prop_assert_eq!(client.is_empty, Some(true));
        }
        prop_assert_eq!(client.held, expected);
    }
}
