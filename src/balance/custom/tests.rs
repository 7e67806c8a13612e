use serde::Serialize;

use super::*;
use crate::balance::stream_queue::Connections;
use crate::{
    balance::load::Loads,
    resource::{Context, Extension, Invalid, Locality, Payload, load_balancing::EndpointPolicy},
};

/// Picks by the path of the request: `/0` the first endpoint, and so on, `/wait`, `/fail` and `/panic`.
#[derive(Debug, PartialEq, Serialize)]
struct ByPath {
    breaks: bool,
}

/// The policy of clusters in other tests.
pub(in crate::balance) fn by_path() -> CustomPolicy {
    CustomPolicy::executed::<ByPath>(crate::base::Custom::new(ByPath { breaks: false }))
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
        Ok(Self { breaks: false })
    }
}

impl EndpointPolicy for ByPath {
    fn balancer(&self, seed: u64) -> Box<dyn EndpointBalancer> {
        Box::new(Balancer { seed, pickers: 0, breaks: self.breaks })
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
            path => {
                let user = request.header("x-user").unwrap_or_default();
                let user = String::from_utf8_lossy(&user).into_owned();
                request.add_metadata("x-picked-for", &user);
                EndpointPick::Endpoint(path[1..].parse().expect("a place"))
            }
        }
    }
}

/// Endpoints 1 to 3, of which some are ready.
fn balancer(breaks: bool) -> (CustomBalancer, Vec<Option<Arc<ReadyEndpoint<u16>>>>) {
    let policy = CustomPolicy::executed::<ByPath>(crate::base::Custom::new(ByPath { breaks }));
    let mut balancer = CustomBalancer::new(&policy, 7);
    let address = |port: u16| ([127, 0, 0, 1], port).into();
    let endpoints =
        (1..=3).map(|port| PolicyEndpoint::new(vec![address(port)], Locality::new("a", "", ""), 5, None));
    balancer.set_endpoints(endpoints.collect());
    let ready = |port| ReadyEndpoint {
        connection: Default::default(),
        connections: Connections::of_one(port),
        address: address(port),
        identity: crate::balance::identity::Identity::default(),
        hostname: None,
        locality: None,
        load: Loads::default().add(),
        breaker: Arc::default(),
        outcomes: None,
        weight: None,
    };
    (balancer, vec![Some(Arc::new(ready(1))), None, Some(Arc::new(ready(3)))])
}

fn outcome(picker: &CustomPicker<u16>, path: &str) -> String {
    match picker.pick(&RouteQuery::new(path, 0).with_header("x-user", "ada")) {
        CustomPick::Endpoint(endpoint, added) => format!("{} {added:?}", endpoint.handle()),
        CustomPick::Wait => "wait".to_owned(),
        CustomPick::Fail(code, message) => format!("{code:?} {message}"),
        CustomPick::Broken => "broken".to_owned(),
    }
}

#[test]
fn ch3_63_a_policy_of_the_application_picks_among_its_endpoints() {
    let (mut balancer, slots) = balancer(false);
    let picker = balancer.picker(slots.clone().into());
    assert_eq!(outcome(&picker, "/2"), r#"3 [("x-picked-for", "ada")]"#);
    assert_eq!(outcome(&picker, "/1"), "wait", "it is not ready");
    assert_eq!(outcome(&picker, "/3"), "wait", "there is no such endpoint");
    assert_eq!(outcome(&picker, "/wait"), "wait");
    assert_eq!(outcome(&picker, "/fail"), "DataLoss 7 1 [(1, 5, true), (2, 5, false), (3, 5, true)]");
    let picker = balancer.picker([None, None, slots[2].clone()].into());
    assert_eq!(outcome(&picker, "/fail"), "DataLoss 7 2 [(1, 5, false), (2, 5, false), (3, 5, true)]");
    let picker = picker.without(|endpoint| endpoint.handle() == 3);
    assert_eq!(outcome(&picker, "/2"), "wait");
}

#[test]
fn ch3_63_a_policy_that_panics_fails_all_picks_from_then_on() {
    let (mut balancer, slots) = balancer(false);
    let picker = balancer.picker(slots.into());
    assert_eq!(outcome(&picker, "/0"), r#"1 [("x-picked-for", "ada")]"#);
    assert_eq!(outcome(&picker, "/panic"), "broken");
    assert_eq!(outcome(&picker, "/0"), "broken");
    assert!(balancer.is_broken());
}

#[test]
fn ch3_63_a_policy_that_panics_instead_of_making_a_picker_fails_all_picks() {
    let (mut balancer, slots) = balancer(true);
    assert!(!balancer.is_broken());
    let picker = balancer.picker(slots.into());
    assert!(balancer.is_broken());
    assert_eq!(outcome(&picker, "/0"), "broken");
}
