//! What load balancing tells metrics.

use std::sync::Mutex;

use super::{outliers::detecting, weights::policy, *};
use crate::balance::{
    observer::{Observation, Observer, PickLabels},
    weights::WeightState,
};

type Seen = Arc<Mutex<Vec<String>>>;

/// A fixture and what it tells.
fn observed(configs: ClusterConfigs) -> (Fixture, Seen) {
    let seen = Seen::default();
    let told = seen.clone();
    let observer = Observer::new(move |it| told.lock().unwrap().push(text(it)));
    (Fixture::with(configs, |settings| settings.pick_first.observer = observer), seen)
}

fn text(observation: Observation<'_>) -> String {
    match observation {
        Observation::Scheduler { cluster, locality, weights } => {
            let count = |state| weights.iter().filter(|it| **it == state).count();
            let usable: Vec<_> = weights.iter().filter_map(|it| it.usable()).collect();
            let (new, stale) = (count(WeightState::NotYetUsable), count(WeightState::Stale));
            let locality = locality.map(|it| it.region()).unwrap_or_default();
            let fallback = if WeightState::are_too_few(weights) { " fallback" } else { "" };
            format!("{cluster}/{locality} {new} new, {stale} stale, {usable:?}{fallback}")
        }
        Observation::Ejected { cluster, method } => format!("{cluster}: ejected by {method}"),
        Observation::NotEjected { cluster, method, reason } => {
            format!("{cluster}: not ejected by {method}: {reason}")
        }
    }
}

fn take(seen: &Seen) -> Vec<String> {
    mem::take(&mut seen.lock().unwrap())
}

impl Fixture {
    /// The labels of a pick, by the name of a cluster.
    fn labels(&mut self, name: &str) -> PickLabels {
        let attributes = &mut CallAttributes::default().with_labels(Some(PickLabels::default()));
        let mut args = PickArgs { attributes, random: &mut self.random, request: &RouteQuery::new("/", 0) };
        drop(self.pickers[name].pick(&mut args));
        attributes.labels.clone().unwrap()
    }

    /// The localities of 40 picks.
    fn localities(&mut self) -> BTreeSet<String> {
        (0..40).filter_map(|_| Some(self.labels("shop").locality?.to_string())).collect()
    }
}

fn labels(backend_service: &str, locality: Option<&str>) -> PickLabels {
    PickLabels {
        backend_service: Some(backend_service.into()),
        locality: locality.map(Into::into),
        service: None,
    }
}

fn place(region: &str) -> String {
    format!(r#"{{region="{region}", zone="", sub_zone=""}}"#)
}

#[test]
fn ch3_47_ch9_16_each_scheduler_is_counted_once_with_the_states_of_its_weights() {
    let (mut it, seen) = observed(shop(policy(0, None), &[&[1, 3]]));
    it.connect_all();
    assert_eq!(take(&seen), ["shop/ 1 new, 0 stale, [] fallback", "shop/ 2 new, 0 stale, [] fallback"]);
    it.wait(1);
    assert!(take(&seen).is_empty(), "no scheduler is made of the same weights");
    it.report_all();
    it.wait(1);
    assert_eq!(take(&seen), ["shop/ 0 new, 0 stale, [2.0, 6.0]"]);
    for _ in 0..1_000 {
        it.pick("shop");
    }
    assert!(take(&seen).is_empty(), "picks read the scheduler");
    it.wait(1_000);
    assert_eq!(take(&seen), ["shop/ 0 new, 2 stale, [] fallback"]);
}

#[test]
fn ch9_16_the_scheduler_of_a_locality_has_its_name() {
    let policy = ClusterPolicy { by_locality: true, ..policy(0, None) };
    let (mut it, seen) = observed(shop(policy, &[&[1]]));
    it.connect_all();
    assert_eq!(take(&seen), ["shop/a 1 new, 0 stale, [] fallback"]);
}

#[test]
fn ch9_17_ejections_are_counted_with_their_algorithm_and_the_reason_if_there_is_none() {
    let (mut it, seen) = observed(detecting(ROUND_ROBIN, &[&[1, 2, 3]]));
    it.connect_all();
    it.attempts(&[1]);
    it.wait(10);
    assert_eq!(take(&seen), ["shop: ejected by failure_percentage"]);
    it.wait(40);
    assert!(take(&seen).is_empty(), "the end of an ejection is none");
    let mut configs = detecting(ROUND_ROBIN, &[&[1, 2, 3]]);
    for leaf in configs.leaves.values_mut() {
        let detection = Arc::make_mut(leaf).outlier_detection.as_mut().unwrap();
        detection.max_ejection_percent = 0;
    }
    it.update(configs);
    it.attempts(&[1]);
    it.wait(10);
    assert_eq!(take(&seen), ["shop: not ejected by failure_percentage: max_ejection_overflow"]);
    let mut configs = detecting(ROUND_ROBIN, &[&[1, 2, 3]]);
    for leaf in configs.leaves.values_mut() {
        let detection = Arc::make_mut(leaf).outlier_detection.as_mut().unwrap();
        detection.failure_percentage.as_mut().unwrap().enforcement_percent = 0;
    }
    it.update(configs);
    it.attempts(&[1]);
    it.wait(10);
    assert_eq!(take(&seen), ["shop: not ejected by failure_percentage: enforcement_percentage"]);
}

#[test]
fn ch9_14_picks_are_labelled_with_the_leaf_cluster_and_the_locality_of_the_endpoint() {
    for policy in [ROUND_ROBIN, LEAST_REQUEST, PICK_FIRST] {
        let is_one = policy == PICK_FIRST;
        let places = |regions: [(&str, &[u16]); 2]| {
            let priority = regions.map(|(region, ports)| locality(region, 1, ports));
            let leaf = leaf(policy.clone(), vec![priority.into()]);
            configs(&[("leaf", leaf)], &[("shop", &["leaf"])])
        };
        let (mut it, _) = observed(places([("a", &[1, 2]), ("b", &[3])]));
        assert_eq!(it.labels("shop"), labels("leaf", None), "the pick waits");
        it.connect_all();
        let expected = if is_one { vec![place("a")] } else { vec![place("a"), place("b")] };
        assert!(it.localities().iter().eq(&expected), "{policy:?}: {:?}", it.localities());
        // The same endpoints in the same order, in other localities.
        it.update(places([("a", &[1]), ("c", &[2, 3])]));
        it.connect_all();
        let expected = if is_one { vec![place("a")] } else { vec![place("a"), place("c")] };
        assert!(it.localities().iter().eq(&expected), "{policy:?}: {:?}", it.localities());
        it.update(places([("d", &[1]), ("e", &[2, 3])]));
        let expected = if is_one { vec![place("d")] } else { vec![place("d"), place("e")] };
        assert!(it.localities().iter().eq(&expected), "{policy:?}: {:?}", it.localities());
    }
}

#[test]
fn ch9_14_each_endpoint_has_the_locality_that_it_is_listed_in_after_an_edit() {
    let all: Vec<u16> = (1..=20).collect();
    let places = |moved: &[u16], rest: &[u16]| {
        let priority = vec![locality("a", 1, moved), locality("b", 1, rest)];
        configs(&[("shop", leaf(LEAST_REQUEST, vec![priority]))], &[("shop", &["shop"])])
    };
    let of = |it: &Fixture, port: u16| {
        let connection = it.connections[&address(port)];
        it.balancer.labels(connection).locality.unwrap().to_string()
    };
    let (mut it, _) = observed(places(&all[..10], &all[10..]));
    it.connect_all();
    assert_eq!([of(&it, 10), of(&it, 11)], [place("a"), place("b")]);
    // One moves, and all that follow it have the places that they had.
    it.update(places(&all[..9], &all[9..]));
    assert_eq!([of(&it, 9), of(&it, 10), of(&it, 11)], [place("a"), place("b"), place("b")]);
    // One is replaced: a small edit.
    let next: Vec<u16> = all.iter().map(|port| if *port == 9 { 30 } else { *port }).collect();
    it.update(places(&next[..9], &next[9..]));
    it.connect_all();
    assert_eq!([of(&it, 30), of(&it, 8)], [place("a"), place("a")]);
    let owner = it.balancer.labels(it.connections[&address(30)]);
    assert_eq!(owner.backend_service.as_deref(), Some("shop"));
}

#[test]
fn ch9_20_without_a_listener_no_label_is_made() {
    let mut it = Fixture::new(shop(ROUND_ROBIN, &[&[1]]));
    it.connect_all();
    assert_eq!(it.balancer.labels(it.connections[&address(1)]), PickLabels::default());
    assert_eq!(it.labels("shop").locality, None);
    let attributes = &mut CallAttributes::default();
    let mut args = PickArgs { attributes, random: &mut it.random, request: &RouteQuery::new("/", 0) };
    drop(it.pickers["shop"].pick(&mut args));
    assert_eq!(attributes.labels, None);
}
