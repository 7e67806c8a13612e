use serde::Serialize;

use std::time::Instant;

use super::*;
use crate::{
    balance::{
        identity::Identity,
        load::Loads,
        locality_config::{EndpointConfig, LocalityConfig},
        policies::StateCounts,
        ready_set::{Listed, ReadySlots},
        stream_queue::Connections,
    },
    error::Code,
    resource::{
        Context, Extension, Invalid, Locality, Payload, load_balancing::EndpointPolicy as PublicPolicy,
    },
};

/// Picks by the path of the request: `/0` the first endpoint, and so on, `/wait`, `/fail` and `/panic`.
#[derive(Debug, PartialEq, Serialize)]
struct ByPath {
    breaks: bool,
    on_demand: bool,
}

/// The policy of clusters in other tests.
pub(in crate::balance) fn by_path() -> CustomPolicy {
    CustomPolicy::executed::<ByPath>(crate::base::Custom::new(ByPath { breaks: false, on_demand: false }))
}

struct Balancer {
    seed: u64,
    pickers: usize,
    breaks: bool,
}

struct Picker {
    text: String,
}

impl Extension for ByPath {
    const TYPE_NAME: &'static str = "test.ByPath";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self { breaks: false, on_demand: false })
    }
}

impl PublicPolicy for ByPath {
    fn balancer(&self, seed: u64) -> Box<dyn EndpointBalancer> {
        Box::new(Balancer { seed, pickers: 0, breaks: self.breaks })
    }

    fn connects_on_demand(&self) -> bool {
        self.on_demand
    }
}

impl EndpointBalancer for Balancer {
    fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker> {
        assert!(!self.breaks, "as configured");
        self.pickers += 1;
        let ready: Vec<_> =
            endpoints.iter().map(|it| (it.addresses()[0].port(), it.weight(), it.is_ready())).collect();
        Box::new(Picker { text: format!("{} {} {ready:?}", self.seed, self.pickers) })
    }
}

impl EndpointPicker for Picker {
    fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick {
        match request.path() {
            "/wait" => EndpointPick::Wait,
            "/fail" => EndpointPick::Fail { code: Code::DataLoss, message: self.text.clone() },
            "/panic" => panic!("as requested"),
            "/resources" => {
                let in_flight = [0, 1, 2].map(|index| request.requests_in_flight(index));
                let message =
                    format!("{} {} {in_flight:?}", request.hash(), request.hash() == request.random());
                EndpointPick::Fail { code: Code::DataLoss, message }
            }
            "/connect" => {
                request.connect(0);
                request.connect(1);
                EndpointPick::Wait
            }
            "/connect-another" => {
                request.connect(3);
                EndpointPick::Wait
            }
            path => {
                let user = request.header("x-user").unwrap_or_default();
                let user = String::from_utf8_lossy(&user).into_owned();
                request.add_metadata("x-picked-for", &user);
                EndpointPick::Endpoint(path[1..].parse().expect("a place"))
            }
        }
    }
}

fn address(port: u16) -> std::net::SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn custom(config: ByPath) -> Custom {
    Custom(CustomPolicy::executed::<ByPath>(crate::base::Custom::new(config)))
}

/// The state of a policy for endpoints 1 to 3.
fn state(policy: &Custom, before: Option<CustomBalancer>) -> CustomBalancer {
    let endpoint = |port| EndpointConfig {
        addresses: vec![address(port)],
        identity: Identity::default(),
        weight: 5,
        hostname: None,
        hash_key: None,
    };
    let endpoints = (1..=3).map(endpoint).collect();
    let localities = [LocalityConfig::new(Locality::new("a", "", ""), 1, endpoints)];
    let lists = EndpointList::all(0, &localities, false);
    policy.state::<u16>(&lists[0], before, &mut fastrand::Rng::with_seed(7))
}

fn endpoint(port: u16) -> Arc<ReadyEndpoint<u16>> {
    Arc::new(ReadyEndpoint {
        connection: Default::default(),
        connections: Connections::of_one(port),
        address: address(port),
        identity: Identity::default(),
        hostname: None,
        locality: None,
        load: Loads::default().add(),
        breaker: Arc::default(),
        outcomes: None,
        weight: None,
    })
}

/// The picker while these endpoints are ready.
fn picker(state: &mut CustomBalancer, ready: &[u16]) -> Arc<CustomPicker<u16>> {
    let mut slots = ReadySlots::new();
    for port in 1..=3 {
        let endpoint = ready.contains(&port).then(|| endpoint(port));
        state.set_endpoint(usize::from(port) - 1, || match &endpoint {
            Some(endpoint) => EndpointState::Ready(endpoint.clone()),
            None => EndpointState::Connecting,
        });
        slots.push(endpoint.map(|endpoint| Listed::new(&endpoint, false)));
    }
    let (set, counts, now) = (ReadySet::empty(), StateCounts::default(), Instant::now());
    let endpoints =
        PickerEndpoints { slots: &slots, ready: &set, counts, stale_config: None, now, on_weights: &|_| {} };
    state.picker(&endpoints)
}

fn picked(picker: &Arc<CustomPicker<u16>>, path: &str) -> (String, Option<usize>) {
    let mut attributes = CallAttributes::new(RequestHash::of(77));
    let (random, query) = (&mut fastrand::Rng::with_seed(1), RouteQuery::new(path, 0));
    let request = &query.with_header("x-user", "ada");
    let outcome = match picker
        .pick(&ReadySet::empty(), &mut PickArgs { attributes: &mut attributes, random, request })
    {
        PolicyPick::EndpointWithMetadata(endpoint, tracking, metadata) => {
            assert!(tracking.counts_request && tracking.penalty.is_none());
            format!("{} {:?}", endpoint.handle(), metadata)
        }
        PolicyPick::Endpoint(endpoint, _) => format!("{} without metadata", endpoint.handle()),
        PolicyPick::Wait => "wait".to_owned(),
        PolicyPick::Fail(reason) => reason,
        PolicyPick::FailAs(code, message) => format!("{code:?} {message}"),
        PolicyPick::Broken => "broken".to_owned(),
    };
    (outcome, attributes.take_requested())
}

fn outcome(picker: &Arc<CustomPicker<u16>>, path: &str) -> String {
    picked(picker, path).0
}

#[test]
fn ch3_63_a_policy_of_the_application_picks_among_its_endpoints() {
    let policy = custom(ByPath { breaks: false, on_demand: false });
    let mut state = state(&policy, None);
    let first = picker(&mut state, &[1, 3]);
    assert_eq!(outcome(&first, "/2"), r#"3 [("x-picked-for", "ada")]"#);
    assert_eq!(outcome(&first, "/1"), "wait", "it is not ready");
    assert_eq!(outcome(&first, "/3"), "wait", "there is no such endpoint");
    assert_eq!(outcome(&first, "/wait"), "wait");
    let seed = fastrand::Rng::with_seed(7).u64(..);
    let text = format!("DataLoss {seed} 1 [(1, 5, true), (2, 5, false), (3, 5, true)]");
    assert_eq!(outcome(&first, "/fail"), text);
    let second = picker(&mut state, &[3]);
    let text = format!("DataLoss {seed} 2 [(1, 5, false), (2, 5, false), (3, 5, true)]");
    assert_eq!(outcome(&second, "/fail"), text);
    let rest = second.without(&ReadySet::empty(), &|endpoint| endpoint.handle() == 3);
    assert_eq!(outcome(&rest, "/2"), "wait");
}

#[test]
fn ch3_63_a_policy_of_the_application_reads_the_hash_draws_and_requests_in_flight() {
    let policy = custom(ByPath { breaks: false, on_demand: false });
    let picker = picker(&mut state(&policy, None), &[1, 3]);
    let endpoint = picker.ready[2].clone().unwrap();
    endpoint.load.begin();
    endpoint.load.begin();
    assert_eq!(outcome(&picker, "/resources"), "DataLoss 77 false [0, 0, 2]");
}

#[test]
fn ch3_63_a_policy_of_the_application_requests_the_connections_of_its_endpoints() {
    let policy = custom(ByPath { breaks: false, on_demand: true });
    assert!(EndpointPolicy::connects_on_demand(&policy));
    let picker = picker(&mut state(&policy, None), &[]);
    assert_eq!(picked(&picker, "/connect"), ("wait".to_owned(), Some(1)), "the last request counts");
    assert_eq!(picked(&picker, "/connect-another"), ("wait".to_owned(), None), "there is no such endpoint");
}

#[test]
fn ch3_63_a_policy_of_the_application_is_kept_with_its_configuration() {
    let policy = custom(ByPath { breaks: false, on_demand: false });
    let mut first = state(&policy, None);
    picker(&mut first, &[1]);
    let mut second = state(&policy, Some(first));
    assert!(outcome(&picker(&mut second, &[1]), "/fail").contains(" 2 ["), "its second picker");
    let mut other = state(&custom(ByPath { breaks: false, on_demand: true }), Some(second));
    assert!(outcome(&picker(&mut other, &[1]), "/fail").contains(" 1 ["), "it is another one");
}

#[test]
fn ch3_63_a_picker_is_outdated_when_an_endpoint_has_another_state() {
    let mut state = state(&custom(ByPath { breaks: false, on_demand: false }), None);
    let mut set = |to: EndpointState<u16>| state.set_endpoint(0, || to);
    assert!(!set(EndpointState::Idle));
    assert!(set(EndpointState::Failing(None)) && !set(EndpointState::Failing(Some("other".into()))));
    assert!(set(EndpointState::Ready(endpoint(1))) && !set(EndpointState::Ready(endpoint(1))));
}

#[test]
fn ch3_63_a_policy_that_panics_fails_all_picks_from_then_on() {
    let mut state = state(&custom(ByPath { breaks: false, on_demand: false }), None);
    let picker = picker(&mut state, &[1, 3]);
    assert_eq!(outcome(&picker, "/0"), r#"1 [("x-picked-for", "ada")]"#);
    assert_eq!(outcome(&picker, "/panic"), "broken");
    assert_eq!(outcome(&picker, "/0"), "broken");
    assert!(state.is_broken());
}

#[test]
fn ch3_63_a_policy_that_panics_instead_of_making_a_picker_fails_all_picks() {
    let mut state = state(&custom(ByPath { breaks: true, on_demand: false }), None);
    assert!(!state.is_broken());
    let picker = picker(&mut state, &[1, 3]);
    assert!(state.is_broken());
    assert_eq!(outcome(&picker, "/0"), "broken");
}
