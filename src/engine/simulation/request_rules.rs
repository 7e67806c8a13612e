//! Every request that the client writes on a stream, checked by the protocol document alone: node, nonce, version, names, their
//! order and spelling, and what the version stands for. It knows what the server sent and what is held, and nothing of the client.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    parts::Full,
    session::{Request, Response},
    stream_rules::Due,
};
use crate::{
    pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    resource::{Cluster, Listener, Resource},
};

/// The messages of one stream so far, as the client has seen and written them.
#[derive(Debug, Default)]
pub(super) struct RequestRules {
    has_node: bool,
    types: BTreeMap<String, OfType>,
}

#[derive(Debug, Default)]
struct OfType {
    is_requested: bool,
    /// The responses that were delivered.
    responses: Vec<Delivered>,
    /// How many of them a request has answered, or needs not answer since it has answered a later one.
    answered: usize,
    /// The version of the last request, where it is that of a response, or the first one.
    version: String,
    names: Vec<String>,
    /// A name was sent, so that an empty list does not mean everything any more.
    named: bool,
    /// What the server has sent on the stream, and has not shown to be deleted since.
    sent: BTreeSet<String>,
    /// A name that is not held and was alone in an ACK behind an empty list, which the server may take for everything. It is not
    /// claimed if the next request has no version, or not the name.
    stand_in: Option<String>,
}

#[derive(Debug)]
struct Delivered {
    nonce: String,
    version: String,
    due: Due,
    is_heartbeat: bool,
    /// What the server has first sent on the stream with it.
    added: BTreeSet<String>,
}

impl RequestRules {
    /// A response is delivered. `subscribed` has the names of the last request that the server has read.
    pub(super) fn on_response(&mut self, response: &Response, due: Due, subscribed: &BTreeSet<String>) {
        // B0.7: a response of a type that was not requested is not answered.
        let Some(of_type) = self.types.get_mut(response.type_url()).filter(|it| it.is_requested) else {
            return;
        };
        of_type.responses.push(Delivered {
            nonce: response.nonce().to_owned(),
            version: response.version(),
            due,
            is_heartbeat: response.names().next().is_none() && !response.resources().is_empty(),
            added: BTreeSet::new(),
        });
        if due == Due::Nack || of_type.responses.last().is_some_and(|it| it.is_heartbeat) {
            return;
        }
        let names: BTreeSet<_> = response.names().collect();
        if FULL_STATE.contains(&response.type_url()) {
            let is_wildcard = subscribed.is_empty() || subscribed.contains(WILDCARD);
            of_type.sent.retain(|name| names.contains(name) || !(is_wildcard || subscribed.contains(name)));
        }
        let added: BTreeSet<_> = response.good_names().filter(|name| !of_type.sent.contains(name)).collect();
        of_type.sent.extend(added.iter().cloned());
        if let Some(delivered) = of_type.responses.last_mut() {
            delivered.added = added;
        }
    }

    /// A request is written while these resources of the server are held.
    pub(super) fn on_request(&mut self, request: &Request, held: &BTreeSet<String>) {
        assert_eq!(
            request.has_node(),
            !self.has_node,
            "the first request of a stream has the node, and no other"
        );
        self.has_node = true;
        assert!(!request.type_url().is_empty(), "each request has its type");
        if let Some(error) = request.error() {
            assert!(error.code == 3 && !error.message.is_empty(), "a NACK has INVALID_ARGUMENT and a reason");
            assert!(error.message.len() <= 4096, "a NACK is cut at 4 KiB");
        }
        let of_type = self.types.entry(request.type_url().to_owned()).or_default();
        match request {
            Request::Sotw(request) => of_type.check_sotw(request, held),
            Request::Delta(request) => of_type.check_delta(request, held),
        }
        of_type.is_requested = true;
    }
}

impl OfType {
    fn check_sotw(&mut self, request: &DiscoveryRequest, held: &BTreeSet<String>) {
        let names = &request.resource_names;
        check_spelling(names);
        assert!(
            names.is_sorted() && names.windows(2).all(|two| two[0] != two[1]),
            "sorted, each once: {names:?}"
        );
        let is_rejection = request.error_detail.is_some();
        if !self.is_requested {
            assert!(request.response_nonce.is_empty() && !is_rejection, "the first request answers nothing");
            assert!(
                !names.iter().any(|name| name == WILDCARD),
                "a stream begins with the empty list: {names:?}"
            );
            (self.version, self.names) = (request.version_info.clone(), names.clone());
            self.named = !names.is_empty();
            return;
        }
        let answer = self.answer_to(&request.response_nonce);
        if is_rejection {
            assert!(
                answer.is_some() || self.is_repeated(&request.response_nonce),
                "a NACK answers a response"
            );
            // A server may ignore the names of a NACK: a change in it would be lost.
            assert_eq!(*names, self.names, "a NACK has the names of the request before it");
            // Which of its resources are good is not known to all worlds.
            if let Some(rejected) = answer.and_then(|place| self.responses.get(place)) {
                self.sent.retain(|name| !rejected.added.contains(name));
            }
        }
        self.check_version(request, answer);
        if let Some(name) = self.stand_in.take_if(|_| !is_rejection) {
            let is_claimed =
                !request.version_info.is_empty() && names.contains(&name) && !held.contains(&name);
            assert!(!is_claimed, "{:?} stands for {name}, and it is not held", request.version_info);
        }
        // A wildcard that was the empty list is spelled before it ends, which changes nothing at the server.
        let is_respelled = !self.named && names.len() == 1 && names[0] == WILDCARD;
        // Without a version nothing is claimed; that of a NACK is the one that was accepted last, whatever became of it since.
        if !request.version_info.is_empty() && !is_rejection && !is_respelled {
            // The version of an ACK is that of the response: what it must not have are new names that stand for more.
            let before = &self.names;
            let is_new = |name: &&String| answer.is_none() || !before.contains(*name);
            let wildcard = names.iter().any(|name| name == WILDCARD) || (names.is_empty() && !self.named);
            let claimed = |name: &&String| (wildcard && answer.is_none()) || names.contains(*name);
            let missing = self.sent.iter().filter(claimed).filter(is_new).find(|name| !held.contains(*name));
            let is_stand_in = answer.is_some() && self.names.is_empty() && names.len() == 1;
            match is_stand_in && missing == names.first() {
                true => self.stand_in = names.first().cloned(),
                false => {
                    assert_eq!(missing, None, "{:?} stands for it, and it is not held", request.version_info)
                }
            }
        }
        if let Some(place) = answer {
            self.answered = place + 1;
        }
        if !is_rejection {
            self.version.clone_from(&request.version_info);
            self.names.clone_from(names);
            self.named |= !names.is_empty();
        }
    }

    /// An ACK has the version of its response; others that of a response that was accepted.
    fn check_version(&self, request: &DiscoveryRequest, answer: Option<usize>) {
        let version = &request.version_info;
        let since = &self.responses[..answer.unwrap_or(self.responses.len())];
        let accepted = since.iter().filter(|response| response.due != Due::Nack);
        let is_accepted = accepted.map(|response| &response.version).any(|accepted| accepted == version);
        let is_kept = version.is_empty() || *version == self.version || is_accepted;
        let of_response = answer.map(|place| &self.responses[place]);
        match of_response.filter(|_| request.error_detail.is_none()) {
            // A heartbeat of a version that is not held is answered, and changes nothing.
            Some(response) if response.is_heartbeat && is_kept => {}
            Some(response) => {
                assert_eq!(*version, response.version, "an ACK has the version of its response")
            }
            None => assert!(is_kept, "the version {version:?} was not accepted"),
        }
    }

    /// The place of the response that a nonce answers, if it was not answered before.
    fn answer_to(&self, nonce: &str) -> Option<usize> {
        if nonce.is_empty() {
            assert_eq!(self.answered, 0, "the newest nonce is sent with each request");
            return None;
        }
        let place = self.responses.iter().rposition(|response| response.nonce == nonce);
        let place = place.unwrap_or_else(|| panic!("the nonce {nonce:?} never came"));
        assert!(place + 1 >= self.answered, "the nonce {nonce:?} is an older one");
        (place >= self.answered).then_some(place)
    }

    /// Whether several responses had a nonce.
    fn is_repeated(&self, nonce: &str) -> bool {
        self.responses.iter().filter(|response| response.nonce == nonce).count() > 1
    }

    fn check_delta(&mut self, request: &DeltaDiscoveryRequest, held: &BTreeSet<String>) {
        check_spelling(&request.resource_names_subscribe);
        check_spelling(&request.resource_names_unsubscribe);
        let is_answer = !request.response_nonce.is_empty();
        if is_answer {
            let is_known = self.responses.iter().any(|response| response.nonce == request.response_nonce);
            assert!(is_known, "the nonce {:?} never came", request.response_nonce);
        }
        if request.error_detail.is_some() {
            assert!(is_answer, "a NACK answers a response");
        }
        if !self.is_requested {
            assert!(!is_answer, "the first request answers nothing");
            let mut versions = request.initial_resource_versions.keys();
            let missing = versions.find(|name| !held.contains(*name));
            assert_eq!(missing, None, "its version is claimed, and it is not held");
        }
        let subscribed = &request.resource_names_subscribe;
        let is_star = subscribed.iter().any(|name| name == WILDCARD);
        assert!(self.is_requested || !is_star, "a stream begins with the empty list: {subscribed:?}");
        for name in &request.resource_names_unsubscribe {
            // The wildcard may have been subscribed to by the empty list.
            let is_subscribed = self.names.contains(name) || name == WILDCARD;
            assert!(is_subscribed, "{name} is unsubscribed, and was not subscribed");
        }
        self.names.retain(|name| !request.resource_names_unsubscribe.contains(name));
        self.names.extend(subscribed.iter().cloned());
    }
}

/// Names are sent as the world writes them.
fn check_spelling(names: &[String]) {
    let is_plain =
        |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    assert!(names.iter().all(is_plain), "no names of the world: {names:?}");
}

const WILDCARD: &str = "*";
/// The types whose responses are complete.
const FULL_STATE: [&str; 3] = [Full::TYPE_URL, Listener::TYPE_URL, Cluster::TYPE_URL];
