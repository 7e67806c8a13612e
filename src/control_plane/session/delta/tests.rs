use proptest::prelude::*;

use super::*;
use crate::{
    control_plane::{
        AnyResource,
        session::{
            Answer, Behavior,
            features::node_with_features,
            response_rules::{Leeway, ResponseRules},
        },
        type_url,
    },
    pb::google::rpc::Status,
};

const LDS: &str = type_url::LISTENER;
const CDS: &str = type_url::CLUSTER;
const EDS: &str = type_url::ENDPOINTS;

/// A session with its store, and the nonces of unacknowledged responses.
#[derive(Default)]
struct Pair {
    session: DeltaSession,
    store: Store,
    nonces: BTreeMap<String, String>,
    rules: ResponseRules,
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

    /// A request that changes the subscription and acknowledges nothing.
    fn change(&mut self, type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) -> Handled {
        self.handle(request(type_url, subscribe, unsubscribe))
    }

    fn handle(&mut self, request: DeltaDiscoveryRequest) -> Handled {
        if self.session.types.is_empty() {
            let form_only = self.session.settings.behavior != Behavior::default();
            self.rules = ResponseRules::new(Leeway { form_only, ..Leeway::default() });
        }
        self.rules.on_delta_request(&request);
        self.session.handle_request(request).unwrap()
    }

    /// The first request on a stream after a reconnection.
    fn reconnect(&mut self, type_url: &str, subscribe: &[&str], held: &[(&str, &str)]) -> Vec<String> {
        let owned = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
        let request = DeltaDiscoveryRequest {
            initial_resource_versions: held.iter().map(owned).collect(),
            ..request(type_url, subscribe, &[])
        };
        self.session = DeltaSession::new(self.session.settings.clone());
        self.nonces.clear();
        self.handle(request);
        self.responses()
    }

    /// The ACK or NACK of the unacknowledged response.
    fn answer(&mut self, type_url: &str, error: Option<&str>) -> Handled {
        let nonce = self.nonces.remove(type_url).expect("a response on its way");
        let status = |message: &str| Status { code: 3, message: message.into(), details: Vec::new() };
        let request = DeltaDiscoveryRequest {
            response_nonce: nonce,
            error_detail: error.map(status),
            ..request(type_url, &[], &[])
        };
        self.handle(request)
    }

    fn poll(&mut self) -> Option<DeltaDiscoveryResponse> {
        let response = self.session.poll_response(&self.store)?;
        assert_eq!(self.rules.on_delta_response(&response), Ok(()), "{response:?}");
        let before = self.nonces.insert(response.type_url.clone(), response.nonce.clone());
        assert_eq!(before, None, "a second response of a type is on its way");
        Some(response)
    }

    /// Returns all due responses; see [`text`].
    fn responses(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.poll()).map(|response| text(&response)).collect()
    }

    /// Changes the subscription, and returns all responses, each of which is acknowledged.
    fn exchange(&mut self, type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) -> Vec<String> {
        self.change(type_url, subscribe, unsubscribe);
        self.settle()
    }

    /// Returns all due responses, each of which is acknowledged.
    fn settle(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(response) = self.poll() {
            sent.push(text(&response));
            self.answer(&response.type_url, None);
        }
        sent
    }
}

fn request(type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) -> DeltaDiscoveryRequest {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    DeltaDiscoveryRequest {
        node: node_with_features(),
        type_url: type_url.into(),
        resource_names_subscribe: owned(subscribe),
        resource_names_unsubscribe: owned(unsubscribe),
        ..DeltaDiscoveryRequest::default()
    }
}

/// `TYPE VERSION: NAME@VERSION=BYTES/TTL... NAME@VERSION~TTL... -REMOVED... !NAME=CODE...`, with `~` for a heartbeat.
fn text(response: &DeltaDiscoveryResponse) -> String {
    let short = response.type_url.rsplit('.').next().unwrap();
    let resources = response.resources.iter().map(|resource| {
        let body = resource.resource.as_ref().map(|any| format!("={}", String::from_utf8_lossy(&any.value)));
        let ttl = resource.ttl.as_ref().map(|ttl| format!("/{}", ttl.seconds)).unwrap_or_default();
        format!(" {}@{}{}{ttl}", resource.name, resource.version, body.unwrap_or("~".into()))
    });
    let removed = response.removed_resources.iter().map(|name| format!(" -{name}"));
    let errors = response.resource_errors.iter().map(|error| {
        let code = error.error_detail.as_ref().unwrap().code;
        format!(" !{}={code}", error.resource_name.as_ref().unwrap().name)
    });
    let what: String = resources.chain(removed).chain(errors).collect();
    format!("{short} {}:{what}", response.system_version_info)
}

fn nothing() -> Vec<String> {
    Vec::new()
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
    let mut session = DeltaSession::default();
    let node = |id: &str| Some(Node { id: id.into(), ..Node::default() });
    let request = request(CDS, &["a"], &[]);
    session.handle_request(DeltaDiscoveryRequest { node: node("first"), ..request.clone() }).unwrap();
    session.handle_request(DeltaDiscoveryRequest { node: node("second"), ..request }).unwrap();
    assert_eq!(session.node().unwrap().id, "first");
}

#[test]
fn a_request_without_a_type_is_misuse() {
    let handled = DeltaSession::default().handle_request(DeltaDiscoveryRequest::default());
    assert_eq!(handled, Err(Misuse::NoTypeUrl));
}

#[test]
fn what_is_subscribed_to_comes_and_then_as_it_changes() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1"), (EDS, "c", "c1")]);
    assert_eq!(pair.exchange(EDS, &["b", "a"], &[]), ["ClusterLoadAssignment 1: a@1=a1 b@1=b1"]);
    pair.set(&[(EDS, "b", "b2"), (EDS, "c", "c2")]);
    assert_eq!(pair.settle(), ["ClusterLoadAssignment 2: b@2=b2"]);
    pair.set(&[(EDS, "c", "c3")]);
    assert_eq!(pair.settle(), nothing(), "it was not requested");
    assert_eq!(pair.exchange(EDS, &["c"], &[]), ["ClusterLoadAssignment 3: c@3=c3"]);
    assert_eq!(pair.session.subscribed(EDS), ["a", "b", "c"]);
}

#[test]
fn b2_4_an_empty_first_request_is_the_wildcard_which_ends_by_its_name() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.change(CDS, &[], &[]), understood(None, true));
    assert_eq!(pair.settle(), ["Cluster 1: a@1=a1 b@1=b1"]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=a1"]);
    assert_eq!(pair.session.subscribed(CDS), ["*", "a"]);
    assert_eq!(pair.exchange(CDS, &[], &["*"]), nothing());
    pair.set(&[(CDS, "a", "a2"), (CDS, "b", "b2")]);
    assert_eq!(pair.settle(), ["Cluster 2: a@2=a2"]);
    assert_eq!(pair.exchange(CDS, &[], &["a"]), nothing());
    pair.set(&[(CDS, "a", "a3")]);
    assert_eq!(pair.settle(), nothing());
}

#[test]
fn b2_5_empty_lists_on_later_requests_change_nothing() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=a1"]);
    assert_eq!(pair.change(CDS, &[], &[]), understood(None, false));
    assert_eq!(pair.settle(), nothing());
    assert_eq!(pair.session.subscribed(CDS), ["a"]);
}

#[test]
fn b2_8_a_name_subscribed_to_again_is_sent_again() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.exchange(EDS, &["a", "b", "z"], &[]);
    assert_eq!(pair.change(EDS, &["a", "z"], &[]), understood(None, false));
    assert_eq!(pair.settle(), ["ClusterLoadAssignment 1: a@1=a1 -z"]);
    assert_eq!(pair.exchange(CDS, &["*"], &[]), ["Cluster 0:"]);
    pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(pair.settle(), ["Cluster 1: a@1=a1"]);
    assert_eq!(pair.exchange(CDS, &["*"], &[]), ["Cluster 1: a@1=a1"]);
}

#[test]
fn b2_9_a_name_in_both_lists_ends_up_unsubscribed_from() {
    let mut pair = Pair::with(&[(EDS, "a", "a1")]);
    assert_eq!(pair.exchange(EDS, &["a", "b"], &["a"]), ["ClusterLoadAssignment 1: -b"]);
    assert_eq!(pair.session.subscribed(EDS), ["b"]);
}

#[test]
fn b2_10_an_answer_may_carry_a_change() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.change(EDS, &["a"], &[]);
    let nonce = pair.poll().unwrap().nonce;
    let request = DeltaDiscoveryRequest { response_nonce: nonce, ..request(EDS, &["b"], &["a"]) };
    assert_eq!(pair.handle(request), understood(accepted("1"), true));
    pair.nonces.clear();
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: b@1=b1"]);
}

#[test]
fn b2_11_changes_are_taken_whatever_the_nonce() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.change(EDS, &["a"], &[]);
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: a@1=a1"]);
    let odd = DeltaDiscoveryRequest { response_nonce: "odd".into(), ..request(EDS, &["b"], &[]) };
    assert_eq!(pair.handle(odd), understood(None, true));
    assert_eq!(pair.responses(), nothing(), "one response is on its way");
    assert_eq!(pair.answer(EDS, None), understood(accepted("1"), false));
    assert_eq!(pair.responses(), ["ClusterLoadAssignment 1: b@1=b1"]);
}

#[test]
fn b2_14_what_does_not_exist_is_removed_and_comes_when_it_is_made() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    assert_eq!(pair.exchange(CDS, &["a", "b"], &[]), ["Cluster 1: a@1=a1 -b"]);
    pair.remove(CDS, "a");
    assert_eq!(pair.settle(), ["Cluster 2: -a"]);
    pair.set(&[(CDS, "a", "a2"), (CDS, "b", "b1")]);
    assert_eq!(pair.settle(), ["Cluster 3: a@3=a2 b@3=b1"]);
    pair.change(LDS, &[], &[]);
    pair.set(&[(LDS, "l", "l1")]);
    assert_eq!(pair.settle(), ["Listener 1: l@1=l1"]);
    pair.remove(LDS, "l");
    assert_eq!(pair.settle(), ["Listener 2: -l"], "of the wildcard, too");
}

#[test]
fn b2_20_a_name_unsubscribed_under_the_wildcard_is_sent_again_or_removed() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.exchange(CDS, &["*", "a", "z"], &[]);
    assert_eq!(pair.exchange(CDS, &[], &["a", "z", "never subscribed"]), ["Cluster 1: a@1=a1 -z"]);
    assert_eq!(pair.session.subscribed(CDS), ["*"]);
}

#[test]
fn b2_20_it_is_settled_also_before_the_first_response_of_a_stream() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    pair.session.set_held(Held::all());
    assert_eq!(pair.reconnect(CDS, &["*", "a"], &[("a", "1"), ("b", "1")]), ["Cluster 1:"]);
    pair.session = DeltaSession::default();
    let initial_resource_versions = [("a".into(), "1".into()), ("b".into(), "1".into())].into();
    let first = DeltaDiscoveryRequest { initial_resource_versions, ..request(CDS, &["*", "a"], &[]) };
    pair.handle(first);
    pair.nonces.clear();
    assert_eq!(pair.exchange(CDS, &[], &["a"]), ["Cluster 1: a@1=a1"]);
}

#[test]
fn b2_22_the_end_of_the_wildcard_leaves_the_names() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    pair.change(CDS, &["*", "b"], &["*"]);
    assert_eq!(pair.settle(), ["Cluster 1: b@1=b1"]);
    assert_eq!(pair.session.subscribed(CDS), ["b"]);
}

#[test]
fn b2_28_the_answer_to_a_wildcard_may_hold_nothing() {
    let mut pair = Pair::default();
    assert_eq!(pair.exchange(CDS, &[], &[]), ["Cluster 0:"]);
    assert_eq!(pair.exchange(LDS, &["*"], &[]), ["Listener 0:"]);
    assert_eq!(pair.settle(), nothing());
}

#[test]
fn b2_1_what_the_client_holds_is_sent_only_if_it_differs() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    pair.set(&[(EDS, "b", "b2")]);
    let held = [("a", "1"), ("b", "1"), ("c", "1")];
    let expected = ["ClusterLoadAssignment 2: b@2=b2 -c"];
    assert_eq!(pair.reconnect(EDS, &["a", "b", "c"], &held), expected);
    assert_eq!(pair.reconnect(EDS, &[], &held), expected);
    assert_eq!(pair.reconnect(EDS, &["a", "b"], &[("a", "1"), ("b", "2")]), nothing());
    let expected = ["ClusterLoadAssignment 2:"];
    assert_eq!(pair.reconnect(EDS, &["*"], &[("a", "1"), ("b", "2")]), expected);
    assert_eq!(pair.reconnect(EDS, &["*"], &[]), ["ClusterLoadAssignment 2: a@1=a1 b@2=b2"]);
}

#[test]
fn b2_2_versions_on_later_requests_are_ignored() {
    let mut pair = Pair::with(&[(EDS, "a", "a1")]);
    pair.exchange(EDS, &["z"], &[]);
    let initial_resource_versions = [("a".into(), "1".into())].into();
    let later = DeltaDiscoveryRequest { initial_resource_versions, ..request(EDS, &["a"], &[]) };
    pair.handle(later);
    assert_eq!(pair.settle(), ["ClusterLoadAssignment 1: a@1=a1"]);
}

#[test]
fn b2_34_removals_are_sent_also_for_names_in_no_list() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    assert_eq!(pair.reconnect(CDS, &["a"], &[("a", "1"), ("z", "1")]), ["Cluster 1: -z"]);
}

#[test]
fn b2_35_versions_may_be_left_unheard() {
    let settings = Settings { ignore_initial_versions: true, ..Settings::default() };
    let mut pair = Pair { session: DeltaSession::new(settings), ..Pair::default() };
    pair.set(&[(EDS, "a", "a1")]);
    let held = [("a", "1"), ("z", "1")];
    assert_eq!(pair.reconnect(EDS, &["a"], &held), ["ClusterLoadAssignment 1: a@1=a1 -z"]);
    assert_eq!(pair.reconnect(EDS, &[], &held), ["ClusterLoadAssignment 1: a@1=a1 -z"]);
}

#[test]
fn what_is_subscribed_to_again_before_the_first_response_is_sent_whatever_is_held() {
    let mut pair = Pair::with(&[(EDS, "a", "a1"), (EDS, "b", "b1")]);
    for (again, expected) in [("a", "a@1=a1 -z"), ("*", "a@1=a1 b@1=b1 -z")] {
        let held = [("a", "1"), ("b", "1"), ("z", "1")].map(|(name, version)| (name.into(), version.into()));
        let first = DeltaDiscoveryRequest {
            initial_resource_versions: held.into(),
            ..request(EDS, &["a", "b"], &[])
        };
        pair.session = DeltaSession::default();
        pair.handle(first);
        assert_eq!(pair.exchange(EDS, &[again], &[]), [format!("ClusterLoadAssignment 1: {expected}")]);
    }
}

#[test]
fn rejected_resources_are_not_resent_until_they_change_or_are_resubscribed() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.change(CDS, &["a"], &[]);
    pair.responses();
    let rejected = Answer::Rejected { version: "1".into(), code: 3, message: "a: bad".into() };
    assert_eq!(pair.answer(CDS, Some("a: bad")), understood(Some(rejected), false));
    assert_eq!(pair.responses(), nothing());
    assert_eq!(pair.exchange(CDS, &["b"], &[]), ["Cluster 1: -b"]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=a1"]);
    pair.set(&[(CDS, "a", "a2")]);
    assert_eq!(pair.settle(), ["Cluster 2: a@2=a2"]);
}

#[test]
fn changes_on_the_way_to_the_client_wait_for_its_answer() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (CDS, "b", "b1")]);
    pair.change(CDS, &["*"], &[]);
    pair.responses();
    pair.set(&[(CDS, "a", "a2")]);
    pair.set(&[(CDS, "a", "a3"), (CDS, "c", "c1")]);
    pair.remove(CDS, "b");
    pair.remove(CDS, "c");
    assert_eq!(pair.responses(), nothing());
    assert!(pair.session.is_awaiting(CDS));
    pair.answer(CDS, None);
    assert!(!pair.session.is_awaiting(CDS));
    assert_eq!(pair.settle(), ["Cluster 5: a@3=a3 -b"]);
}

#[test]
fn a_large_set_comes_in_several_responses() {
    let settings = Settings { max_per_response: Some(2), ..Settings::default() };
    let mut pair = Pair { session: DeltaSession::new(settings), ..Pair::default() };
    pair.set(&[(CDS, "a", "a1"), (CDS, "c", "c1"), (CDS, "d", "d1"), (CDS, "e", "e1")]);
    pair.change(CDS, &["*", "b"], &[]);
    assert_eq!(pair.responses(), ["Cluster 1: a@1=a1 -b"]);
    pair.remove(CDS, "c");
    pair.set(&[(CDS, "a", "a2")]);
    pair.answer(CDS, None);
    assert_eq!(pair.settle(), ["Cluster 3: a@3=a2 -c", "Cluster 3: d@1=d1 e@1=e1"]);
}

#[test]
fn held_types_are_silent_and_nothing_is_lost() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    let mut held = Held::none();
    held.hold(CDS);
    pair.session.set_held(held);
    pair.change(CDS, &[], &[]);
    assert_eq!(pair.exchange(EDS, &["a"], &[]), ["ClusterLoadAssignment 1: a@1=a1"]);
    pair.session.set_held(Held::none());
    assert_eq!(pair.settle(), ["Cluster 1: a@1=a1"]);
}

#[test]
fn b3_3_types_are_sent_in_order_with_nonces_of_their_own() {
    let settings = Settings { identifier: Some("test server".into()), ..Settings::default() };
    let mut pair = Pair { session: DeltaSession::new(settings), ..Pair::default() };
    for type_url in [LDS, "z.Z", EDS, CDS] {
        pair.change(type_url, &["a"], &[]);
    }
    let responses: Vec<_> = std::iter::from_fn(|| pair.poll()).collect();
    let order: Vec<_> = responses.iter().map(|response| response.type_url.as_str()).collect();
    assert_eq!(order, [CDS, EDS, LDS, "z.Z"]);
    let nonces: std::collections::BTreeSet<_> = responses.iter().map(|response| &response.nonce).collect();
    assert_eq!(nonces.len(), 4);
    assert_eq!(responses[0].control_plane.as_ref().unwrap().identifier, "test server");
}

#[test]
fn answers_to_what_another_put_on_the_stream_are_understood() {
    let mut pair = Pair::with(&[(CDS, "a", "a1")]);
    pair.change(CDS, &["a"], &[]);
    pair.responses();
    let response = DeltaDiscoveryResponse {
        nonce: "mine".into(),
        system_version_info: "x".into(),
        type_url: CDS.into(),
        ..Default::default()
    };
    pair.session.note_sent(&response);
    pair.session.note_sent(&DeltaDiscoveryResponse { type_url: "never.Requested".into(), ..response });
    assert_eq!(pair.answer(CDS, None), understood(accepted("1"), false), "each is answered in delta");
    assert!(pair.session.is_awaiting(CDS));
    pair.nonces.insert(CDS.into(), "mine".into());
    assert_eq!(pair.answer(CDS, None), understood(accepted("x"), false));
    assert_eq!(pair.settle(), nothing());
}

mod behavior;
mod clients;
mod manners;
mod model;
mod names;
mod on_demand;
mod ttl;
