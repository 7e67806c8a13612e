use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::{
    control_plane::{
        AnyResource,
        session::{
            Behavior,
            features::node_with_features,
            response_rules::{Leeway, ResponseRules},
        },
        type_url,
    },
    pb::{envoy::service::discovery::v3::Resource, google::rpc::Status},
};

const LDS: &str = type_url::LISTENER;
const RDS: &str = type_url::ROUTE_CONFIGURATION;
const CDS: &str = type_url::CLUSTER;
const EDS: &str = type_url::ENDPOINTS;

/// A session with its store, and the state of a client: its node, and the newest nonce and version.
struct Pair {
    session: Session,
    store: Store,
    node: Option<Node>,
    rules: ResponseRules,
    nonces: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
}

impl Default for Pair {
    fn default() -> Self {
        let (session, store, node) = (Session::default(), Store::default(), node_with_features());
        let (rules, nonces, versions) = Default::default();
        Self { session, store, node, rules, nonces, versions }
    }
}

impl Pair {
    fn with(resources: &[(&str, &str, &str)]) -> Self {
        let mut pair = Self::default();
        pair.set(resources);
        pair
    }

    fn set(&mut self, resources: &[(&str, &str, &str)]) {
        self.store.update(|tx| {
            for (type_url, name, bytes) in resources {
                tx.set(AnyResource::new(*type_url, *name, (*bytes).to_owned()));
            }
        });
    }

    fn remove(&mut self, type_url: &str, name: &str) {
        self.store.update(|tx| {
            tx.remove(type_url, name);
        });
    }

    /// A request with the newest nonce.
    fn request(&mut self, type_url: &str, names: &[&str]) -> Handled {
        self.send(type_url, names, None)
    }

    fn reject(&mut self, type_url: &str, names: &[&str], message: &str) -> Handled {
        self.send(type_url, names, Some(Status { code: 3, message: message.into(), details: Vec::new() }))
    }

    fn send(&mut self, type_url: &str, names: &[&str], error_detail: Option<Status>) -> Handled {
        let request = DiscoveryRequest {
            version_info: self.versions.get(type_url).cloned().unwrap_or_default(),
            resource_names: names.iter().map(|&name| name.to_owned()).collect(),
            type_url: type_url.into(),
            response_nonce: self.nonces.get(type_url).cloned().unwrap_or_default(),
            error_detail,
            node: self.node.clone(),
            ..DiscoveryRequest::default()
        };
        if self.session.types.is_empty() {
            let form_only = self.session.settings.behavior != Behavior::default();
            self.rules = ResponseRules::new(Leeway { form_only, ..Leeway::default() });
        }
        self.rules.on_sotw_request(&request);
        self.session.handle_request(request).unwrap()
    }

    fn poll(&mut self) -> Option<DiscoveryResponse> {
        let response = self.session.poll_response(&self.store)?;
        assert_eq!(self.rules.on_sotw_response(&response), Ok(()), "{response:?}");
        self.nonces.insert(response.type_url.clone(), response.nonce.clone());
        self.versions.insert(response.type_url.clone(), response.version_info.clone());
        Some(response)
    }

    /// Returns all due responses, as `TYPE VERSION: BYTES...`.
    fn responses(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.poll()).map(|response| text(&response)).collect()
    }

    /// Sends a request, and returns the responses to it.
    fn exchange(&mut self, type_url: &str, names: &[&str]) -> Vec<String> {
        assert_ne!(self.request(type_url, names), Handled::Outdated);
        self.responses()
    }
}

fn text(response: &DiscoveryResponse) -> String {
    let short = response.type_url.rsplit('.').next().unwrap();
    let resources = response.resources.iter().map(|any| String::from_utf8_lossy(&any.value).into_owned());
    let resources = resources.collect::<Vec<_>>().join(" ");
    format!("{short} {}: {resources}", response.version_info)
}

fn understood(answer: Option<Answer>, names_changed: bool) -> Handled {
    Handled::Understood { answer, names_changed }
}

fn accepted(version: &str) -> Option<Answer> {
    Some(Answer::Accepted { version: version.into() })
}

#[test]
fn b0_1_the_server_never_speaks_first() {
    assert_eq!(Pair::with(&[(CDS, "a", "a1")]).poll(), None);
}

#[test]
fn b0_2_the_node_is_that_of_the_first_request() {
    let mut session = Session::default();
    let node = |id: &str| Some(Node { id: id.into(), ..Node::default() });
    let request = DiscoveryRequest { type_url: CDS.into(), ..DiscoveryRequest::default() };
    session.handle_request(DiscoveryRequest { node: node("first"), ..request.clone() }).unwrap();
    session.handle_request(DiscoveryRequest { type_url: EDS.into(), ..request }).unwrap();
    assert_eq!(session.node().unwrap().id, "first");
}

#[test]
fn a_request_without_a_type_is_misuse() {
    assert_eq!(Session::default().handle_request(DiscoveryRequest::default()), Err(Misuse::NoTypeUrl));
}

#[test]
fn b1_2_an_empty_list_is_the_wildcard_for_every_type() {
    for type_url in [CDS, EDS, "example.Custom"] {
        let mut pair = Pair::with(&[(type_url, "a", "a1"), (type_url, "b", "b1")]);
        let [response] = &pair.exchange(type_url, &[])[..] else { panic!("one response") };
        assert!(response.ends_with(" 1: a1 b1"), "{response}");
        assert_eq!(pair.session.subscribed(type_url), ["*"]);
    }
}

#[test]
fn b1_3_wildcard_then_explicit_then_named_then_nothing() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 1: a1 b1"]);
    assert_eq!(pair.request(CDS, &[]), understood(accepted("1"), false));

    assert_eq!(pair.exchange(CDS, &["*", "a"]), ["Cluster 1: a1 b1"]);
    assert_eq!(pair.session.subscribed(CDS), ["*", "a"]);
    assert_eq!(pair.request(CDS, &["a"]), understood(accepted("1"), true));
    assert_eq!(pair.responses(), Vec::<String>::new());
    assert_eq!(pair.session.subscribed(CDS), ["a"]);

    assert_eq!(pair.request(CDS, &[]), understood(None, true));
    assert_eq!(pair.session.subscribed(CDS), Vec::<&str>::new());
    pair.set(&[(CDS, "a", "a2")]);
    assert_eq!(pair.responses(), Vec::<String>::new());
    assert_eq!(pair.exchange(CDS, &["*"]), ["Cluster 2: a2 b1"]);
}

#[test]
fn b1_6_a_fresh_stream_gets_everything_whatever_version_it_has() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.versions.insert(CDS.into(), "1".into());
    assert_eq!(pair.exchange(CDS, &["a"]), ["Cluster 1: a1"]);
}

#[test]
fn b1_8_outdated_nonces_are_ignored_with_their_names() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 1: a1"]);
    let newest = pair.nonces.remove(EDS).unwrap();
    assert_eq!(pair.request(EDS, &["a", "b"]), Handled::Outdated, "written before the response came");
    assert_eq!(pair.session.subscribed(EDS), ["a"]);
    pair.nonces.insert(EDS.into(), "never sent".into());
    assert_eq!(pair.request(EDS, &["a", "b"]), Handled::Outdated);
    pair.nonces.insert(EDS.into(), newest);
    assert_eq!(pair.request(EDS, &["a", "b"]), understood(accepted("1"), true));
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: b1"]);
}

#[test]
fn a_nonce_of_another_stream_is_outdated() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.nonces.insert(CDS.into(), "7".into());
    assert_eq!(pair.request(CDS, &["a"]), Handled::Outdated);
    assert_eq!(pair.responses(), Vec::<String>::new());
}

#[test]
fn b1_9_a_nack_is_reported_with_its_reason() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.exchange(CDS, &[]);
    let rejected = Answer::Rejected { version: "1".into(), code: 3, message: "a: bad".into() };
    assert_eq!(pair.reject(CDS, &[], "a: bad"), understood(Some(rejected), false));
    assert!(!pair.session.is_awaiting(CDS));
}

#[test]
fn rejected_resources_are_not_resent_until_they_change_or_more_names_are_subscribed() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(CDS, &["a"]);
    pair.exchange(EDS, &["a"]);
    for type_url in [CDS, EDS] {
        pair.reject(type_url, &["a"], "bad");
        assert_eq!(pair.responses(), Vec::<String>::new());
        pair.reject(type_url, &["a"], "bad");
        assert_eq!(pair.responses(), Vec::<String>::new(), "not even when the request is repeated");
    }
    assert_eq!(pair.exchange(CDS, &["a", "z"]), ["Cluster 1: a1"]);
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: b1"]);
    pair.reject(CDS, &["a", "z"], "bad");
    pair.request(EDS, &["a", "b"]);
    pair.set(&[(CDS, "a", "a2"), (EDS, "a", "a2")]);
    assert_eq!(pair.responses(), ["Cluster 2: a2", "ClusterLoadAssignment 2: a2"]);
}

#[test]
fn b1_10_listeners_and_clusters_come_complete() {
    let mut pair = Pair::with(&[(LDS, "a", "a1"), (LDS, "b", "b1"), (LDS, "c", "c1")]);
    assert_eq!(pair.exchange(LDS, &["b", "a", "z"]), ["Listener 1: a1 b1"]);
    pair.request(LDS, &["b", "a", "z"]);
    pair.set(&[(LDS, "b", "b2")]);
    assert_eq!(pair.responses(), ["Listener 2: a1 b2"]);
    pair.request(LDS, &["b", "a", "z"]);
    pair.set(&[(LDS, "c", "c2")]);
    assert_eq!(pair.responses(), Vec::<String>::new(), "it was not requested");
    pair.set(&[(LDS, "z", "z1")]);
    assert_eq!(pair.responses(), ["Listener 4: a1 b2 z1"]);
}

#[test]
fn b1_10_an_empty_response_deletes_all() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (LDS, "a", "a1")]);
    pair.exchange(CDS, &[]);
    pair.exchange(LDS, &["a"]);
    pair.request(CDS, &[]);
    pair.request(LDS, &["a"]);
    pair.remove(CDS, "a");
    pair.remove(LDS, "a");
    assert_eq!(pair.responses(), ["Cluster 2: ", "Listener 2: "]);
}

#[test]
fn b1_10_the_first_response_may_be_empty() {
    let mut pair = Pair::default();
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 0: "]);
    assert_eq!(pair.exchange(LDS, &["a"]), ["Listener 0: "]);
}

#[test]
fn b1_11_other_types_come_as_they_change() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1"), (EDS, "c", "c1")]);
    assert_eq!(pair.exchange(EDS, &["a", "b", "z"]), ["ClusterLoadAssignment 1: a1 b1"]);
    pair.request(EDS, &["a", "b", "z"]);
    pair.set(&[(EDS, "b", "b2"), (EDS, "c", "c2")]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 2: b2"]);
    pair.request(EDS, &["a", "b", "z"]);
    pair.set(&[(EDS, "z", "z1")]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 3: z1"]);
}

#[test]
fn b1_11_absence_of_other_types_is_not_sent() {
    let mut pair = Pair::with(&[(RDS, "a", "a1")]);
    assert_eq!(pair.exchange(EDS, &["a"]), Vec::<String>::new());
    pair.exchange(RDS, &["a", "b"]);
    pair.request(RDS, &["a", "b"]);
    pair.remove(RDS, "a");
    assert_eq!(pair.responses(), Vec::<String>::new());
    pair.set(&[(RDS, "a", "a1"), (EDS, "a", "a1")]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: a1", "RouteConfiguration 3: a1"]);
}

#[test]
fn a_resubscribed_name_is_sent_again() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(EDS, &["a", "b"]);
    assert_eq!(pair.exchange(EDS, &["b"]), Vec::<String>::new());
    assert_eq!(pair.exchange(EDS, &["a", "b"]), ["ClusterLoadAssignment 1: a1"]);
}

#[test]
fn changes_on_the_way_to_the_client_wait_for_its_answer() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.exchange(CDS, &[]);
    assert!(pair.session.is_awaiting(CDS));
    pair.set(&[(CDS, "a", "a2")]);
    pair.set(&[(CDS, "a", "a3")]);
    assert_eq!(pair.responses(), Vec::<String>::new());
    assert_eq!(pair.exchange(CDS, &[]), ["Cluster 3: a3"]);
}

#[test]
fn b3_3_types_are_sent_in_order() {
    let resources = [(RDS, "a", "1"), (LDS, "a", "1"), ("z.Z", "a", "1"), (EDS, "a", "1"), (CDS, "a", "1")];
    let mut pair = Pair::with(&resources);
    for (type_url, ..) in resources {
        pair.request(type_url, &["a"]);
    }
    let order =
        ["Cluster 1: 1", "ClusterLoadAssignment 1: 1", "Listener 1: 1", "RouteConfiguration 1: 1", "Z 1: 1"];
    assert_eq!(pair.responses(), order);
}

#[test]
fn nonces_differ_and_versions_carry_the_prefix() {
    let mut pair = Pair { store: Store::new().with_version_prefix("v"), ..Pair::default() };
    pair.set(&[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    pair.request(CDS, &[]);
    pair.request(EDS, &["a"]);
    let [first, second] = [pair.poll().unwrap(), pair.poll().unwrap()];
    assert_ne!(first.nonce, second.nonce);
    assert_eq!((first.version_info.as_str(), second.version_info.as_str()), ("v1", "v1"));
}

#[test]
fn b1_15_resources_may_be_wrapped() {
    let settings =
        Settings { wrap_resources: true, identifier: Some("test server".into()), ..Settings::default() };
    let mut pair = Pair { session: Session::new(settings), ..Pair::default() };
    pair.set(&[(EDS, "a", "a1")]);
    pair.set(&[(EDS, "b", "b1")]);
    pair.request(EDS, &["a"]);
    let response = pair.poll().unwrap();
    assert_eq!(response.control_plane.unwrap().identifier, "test server");
    assert_eq!(response.resources[0].type_url, type_url::WRAPPER);
    let wrapper = Resource::decode(response.resources[0].value.clone()).unwrap();
    assert_eq!((wrapper.name.as_str(), wrapper.version.as_str()), ("a", "1"));
    let inner = wrapper.resource.unwrap();
    assert_eq!((inner.type_url.as_str(), &inner.value[..]), (EDS, &b"a1"[..]));
}

#[test]
fn held_types_are_silent_and_nothing_is_lost() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    let mut held = Held::none();
    held.hold(CDS);
    pair.session.set_held(held.clone());
    pair.request(CDS, &[]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 1: a1"]);
    pair.session.set_held(Held::all());
    pair.set(&[(EDS, "a", "a2")]);
    assert_eq!(pair.request(EDS, &["a"]), understood(accepted("1"), false), "requests are understood");
    assert_eq!(pair.responses(), Vec::<String>::new());
    held.release(CDS);
    pair.session.set_held(held);
    assert_eq!(pair.responses(), ["Cluster 1: a1", "ClusterLoadAssignment 2: a2"]);
}

#[test]
fn answers_to_what_another_put_on_the_stream_are_understood() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.exchange(CDS, &[]);
    let response = DiscoveryResponse {
        nonce: "mine".into(),
        version_info: "x".into(),
        type_url: CDS.into(),
        ..Default::default()
    };
    pair.session.note_sent(&response);
    pair.session.note_sent(&DiscoveryResponse { type_url: "never.Requested".into(), ..response });
    assert_eq!(pair.request(CDS, &[]), Handled::Outdated, "the answer to the one before");
    pair.nonces.insert(CDS.into(), "mine".into());
    assert_eq!(pair.request(CDS, &[]), understood(accepted("x"), false));
    assert_eq!(pair.responses(), Vec::<String>::new());
    pair.set(&[(CDS, "a", "a2")]);
    assert_eq!(pair.responses(), ["Cluster 2: a2"]);
}

mod behavior;
mod features;
mod limits;
mod manners;
mod on_demand;
mod ttl;
mod waits;

/// An event on a stream.
#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    Remove(u8),
    Subscribe(Vec<u8>),
    Poll,
    Answer { reject: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..6u8;
    let step = prop_oneof![
        (name.clone(), 0..3u8).prop_map(|(name, value)| Step::Set(name, value)),
        name.prop_map(Step::Remove),
        // 6 is the wildcard.
        proptest::collection::vec(0..7u8, 0..5).prop_map(Step::Subscribe),
        Just(Step::Poll),
        any::<bool>().prop_map(|reject| Step::Answer { reject }),
    ];
    proptest::collection::vec(step, 0..40)
}

fn named(name: u8) -> String {
    if name == 6 { "*".into() } else { format!("{name}") }
}

proptest! {
    /// A client that only follows responses agrees with the store in the end, after any sequence of events.
    #[test]
    fn the_client_agrees_with_the_store_in_the_end(steps in steps(), full_state: bool) {
        let type_url = if full_state { CDS } else { EDS };
        let mut pair = Pair::default();
        let mut subscribed: Vec<String> = vec!["0".into()];
        let mut client: BTreeMap<String, String> = BTreeMap::new();
        let request = |pair: &mut Pair, subscribed: &[String], reject: bool| {
            let names: Vec<_> = subscribed.iter().map(String::as_str).collect();
            if reject { pair.reject(type_url, &names, "no") } else { pair.request(type_url, &names) }
        };
        let apply = |pair: &mut Pair, subscribed: &[String], client: &mut BTreeMap<String, String>| {
            let response = pair.poll()?;
            if full_state {
                client.clear();
            }
            for any in &response.resources {
                let value = String::from_utf8(any.value.to_vec()).unwrap();
                client.insert(value.split('=').next().unwrap().to_owned(), value);
            }
            client.retain(|name, _| subscribed.contains(name) || subscribed.contains(&"*".to_owned()));
            Some(())
        };
        request(&mut pair, &subscribed, false);
        for step in steps {
            match step {
                Step::Set(name, value) => {
                    let name = named(name);
                    pair.set(&[(type_url, &name, &format!("{name}={value}"))]);
                }
                Step::Remove(name) => pair.remove(type_url, &named(name)),
                Step::Subscribe(names) => {
                    subscribed = names.into_iter().map(named).collect();
                    client.retain(|name, _| subscribed.contains(name) || subscribed.contains(&"*".to_owned()));
                    request(&mut pair, &subscribed, false);
                }
                Step::Poll => {
                    apply(&mut pair, &subscribed, &mut client);
                }
                Step::Answer { reject } if pair.session.is_awaiting(type_url) => {
                    request(&mut pair, &subscribed, reject);
                }
                Step::Answer { .. } => {}
            }
        }
        for _ in 0..3 {
            request(&mut pair, &subscribed, false);
            while apply(&mut pair, &subscribed, &mut client).is_some() {}
        }
        prop_assert!(pair.poll().is_none());
        let now = pair.store.get(type_url);
        for (name, stored) in now.iter() {
            let is_subscribed = subscribed.contains(&name.to_owned()) || subscribed.contains(&"*".to_owned());
            let held = client.get(name).map(|value| value.as_bytes());
            prop_assert_eq!(held, is_subscribed.then_some(&stored.bytes()[..]), "{}", name);
        }
        if full_state {
            let exists = |name: &String| now.resource(name).is_some();
            prop_assert!(client.keys().all(exists));
        }
    }
}

#[test]
fn cp3_responses_have_the_version_that_was_set_for_their_type() {
    let mut pair = Pair::with(&[(EDS, "a", "e1")]);
    pair.store.update(|tx| {
        tx.set(AnyResource::new(CDS, "a", "a1")).set_version(CDS, "release-1");
    });
    assert_eq!(pair.exchange(CDS, &["a"]), ["Cluster release-1: a1"]);
    assert_eq!(pair.request(CDS, &["a"]), understood(accepted("release-1"), false));
    pair.store.update(|tx| {
        tx.set_version(CDS, "release-2");
    });
    assert_eq!(pair.responses(), [""; 0], "no resource has changed");
    pair.set(&[(EDS, "a", "e2")]);
    assert_eq!(pair.exchange(EDS, &["a"]), ["ClusterLoadAssignment 2: e2"]);
    assert_eq!(pair.exchange(CDS, &["a", "b"]), ["Cluster release-2: a1"]);
}
