use std::{num::NonZeroU32, time::Duration};

use super::*;
use crate::{
    balance::{
        locality_config::{EndpointConfig, LocalityConfig},
        policies::{Policy, pick_first, round_robin::RoundRobin},
        policy::{ClusterPolicy, HostsConfig},
    },
    resolve::fixture::{eds, snapshot, with, without},
    resource::{
        OutlierDetection, UpstreamTls,
        load_balancing::{PickFirst, RandomSubsetting, WrrLocality},
        tls::Roots,
    },
};

/// What a translation of a snapshot changes: targets with their leaves, and leaves with the number of their endpoints.
fn changes(
    translation: &mut Translation,
    snapshot: &Arc<Snapshot>,
    (used, added, removed): (&[&str], &[&str], &[&str]),
) -> Vec<String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    let is_used = |name: &str| used.contains(&name);
    let changes = translation.translate(snapshot, is_used, (names(added), names(removed)));
    let target = |(name, config): (Arc<str>, Option<ClusterConfig>)| match config {
        Some(ClusterConfig::Leaves(leaves)) => format!("{name} -> {}", leaves.join(",")),
        Some(ClusterConfig::Gone(_)) => format!("{name} is gone"),
        Some(ClusterConfig::Unusable(_)) => format!("{name} is unusable"),
        Some(ClusterConfig::Unknown(_)) => format!("{name} is unknown"),
        None => format!("no {name}"),
    };
    let leaf = |(name, config): (Arc<str>, Option<Arc<LeafConfig>>)| match config {
        Some(config) => {
            let localities = config.priorities.iter().flatten();
            format!("{name}: {}", localities.map(|it| it.endpoints.len()).sum::<usize>())
        }
        None => format!("no leaf {name}"),
    };
    changes.targets.into_iter().map(target).chain(changes.leaves.into_iter().map(leaf)).collect()
}

fn with_seed(seed: u64) -> Translation {
    Translation::new(&BalancerSettings::with_seed(seed))
}

const NONE: [&str; 0] = [];

#[test]
fn ch1_25_a_change_of_one_cluster_translates_that_one_alone() {
    let used = (&["cart", "wine"][..], &[][..], &[][..]);
    let first =
        Arc::new(snapshot("shop").eds("cart", &[&["10.0.0.1:80"]]).eds("wine", &[&["10.0.0.2:80"]]).build());
    let mut translation = with_seed(1);
    let all = ["cart -> cart", "wine -> wine", "cart: 1", "wine: 1"];
    assert_eq!(changes(&mut translation, &first, used), all);
    assert_eq!(changes(&mut translation, &first, used), NONE);
    let next = Arc::new(with(&first, eds("cart", &[&["10.0.0.1:80", "10.0.0.3:80"]])));
    assert_eq!(changes(&mut translation, &next, used), ["cart -> cart", "cart: 2"]);
}

#[test]
fn ch1_25_a_change_of_a_leaf_is_none_of_its_aggregates() {
    let mesh = snapshot("shop").aggregate("all", &["one", "two"]).aggregate("some", &["two"]);
    let first = Arc::new(mesh.eds("one", &[]).eds("two", &[&["10.0.0.2:80"]]).build());
    let mut translation = with_seed(1);
    let used = (&["all", "some"][..], &[][..], &[][..]);
    let all = ["all -> one,two", "some -> two", "one: 0", "two: 1"];
    assert_eq!(changes(&mut translation, &first, used), all);
    let next = Arc::new(with(&first, eds("two", &[&["10.0.0.2:80", "10.0.0.3:80"]])));
    assert_eq!(changes(&mut translation, &next, used), ["two: 2"]);
    let removed = changes(&mut translation, &next, (&["some"], &[], &["all"]));
    assert_eq!(removed, ["no all", "no leaf one"], "the other leaf is used still");
    assert_eq!(changes(&mut translation, &next, (&[], &[], &["some"])), ["no some", "no leaf two"]);
    let added = changes(&mut translation, &next, (&["some"], &["some"], &[]));
    assert_eq!(added, ["some -> two", "two: 2"], "although nothing changed in the snapshot");
}

#[test]
fn ch1_20_a_cluster_that_a_snapshot_lacks_keeps_what_was_known() {
    let first = Arc::new(snapshot("shop").eds("cart", &[&["10.0.0.1:80"]]).build());
    let mut translation = with_seed(1);
    let used = (&["cart"][..], &[][..], &[][..]);
    assert_eq!(changes(&mut translation, &first, used), ["cart -> cart", "cart: 1"]);
    let lacking = Arc::new(without(&first, "cart"));
    assert_eq!(changes(&mut translation, &lacking, used), NONE);
    assert_eq!(changes(&mut translation, &first, used), ["cart -> cart"], "its endpoints are the same");
}

#[test]
fn ch3_64_the_outlier_detection_of_a_cluster_is_that_of_its_leaf() {
    let detection = OutlierDetection { max_ejection_percent: 7, ..default_detection() };
    let mut cart = eds("cart", &[&["10.0.0.1:80"]]);
    let config = Cluster {
        outlier_detection: Some(Box::new(detection.clone())),
        ..(**cart.config.as_ref().unwrap()).clone()
    };
    cart.config = Some(Arc::new(config));
    let first = snapshot("shop").entry(cart).eds("wine", &[&["10.0.0.2:80"]]).build();
    let names = ["cart", "wine"].map(Arc::from);
    let changes = with_seed(1).translate(&Arc::new(first), |_| true, (names.into(), Vec::new()));
    let detections =
        changes.leaves.iter().map(|(name, leaf)| (&**name, leaf.as_ref().unwrap().outlier_detection.clone()));
    assert_eq!(detections.collect::<Vec<_>>(), [("cart", Some(detection)), ("wine", None)]);
}

fn default_detection() -> OutlierDetection {
    OutlierDetection {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 10,
        success_rate: None,
        failure_percentage: None,
    }
}

#[test]
fn ch1_13_a_cluster_that_does_not_exist_is_gone() {
    let first = Arc::new(snapshot("shop").missing("cart").without_endpoints("wine").build());
    let used = (&["cart", "wine"][..], &[][..], &[][..]);
    let translated = changes(&mut with_seed(1), &first, used);
    assert_eq!(translated, ["cart is gone", "wine -> wine", "wine: 0"]);
}

fn subset(size: u32, child: LbPolicy) -> LbPolicy {
    let subset_size = NonZeroU32::new(size).unwrap();
    LbPolicy::RandomSubsetting(RandomSubsetting { subset_size, child_policy: Box::new(child) })
}

/// What a translation makes of a cluster with this policy and endpoints of these ports; `None` if nothing changed.
fn translate(
    translation: &mut Translation,
    policy: &LbPolicy,
    ports: std::ops::Range<u16>,
) -> Option<Arc<LeafConfig>> {
    let addresses: Vec<_> = ports.map(|port| format!("10.0.0.1:{port}")).collect();
    let mut entry = eds("cart", &[&addresses.iter().map(String::as_str).collect::<Vec<_>>()]);
    let cluster = (**entry.config.as_ref().unwrap()).clone();
    entry.config = Some(Arc::new(Cluster { lb_policy: policy.clone(), ..cluster }));
    let snapshot = Arc::new(snapshot("shop").entry(entry).build());
    let changes = translation.translate(&snapshot, |name| name == "cart", (vec!["cart".into()], vec![]));
    changes.leaves.into_iter().next()?.1
}

fn ports(priorities: &[Vec<LocalityConfig>]) -> BTreeSet<u16> {
    let endpoints = priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
    endpoints.map(|endpoint| endpoint.addresses[0].port()).collect()
}

#[test]
fn ch3_61_ch3_62_a_cluster_uses_a_subset_of_its_endpoints_for_the_life_of_its_channel() {
    let mut translation = with_seed(7);
    let policy = subset(5, LbPolicy::RoundRobin);
    let first = translate(&mut translation, &policy, 1..41).unwrap();
    assert_eq!(first.policy.policy, Policy::RoundRobin(RoundRobin));
    assert_eq!((ports(&first.priorities).len(), ports(first.listed()).len()), (5, 40));
    let mut replaced = 0;
    for to in 42..82 {
        let next = translate(&mut translation, &policy, 1..to).unwrap();
        replaced += ports(&next.priorities).difference(&ports(&first.priorities)).count();
        assert!(
            ports(&next.priorities).difference(&ports(&first.priorities)).count() <= usize::from(to - 41)
        );
    }
    assert!(replaced > 0);
    let again = translate(&mut translation, &policy, 1..41).unwrap();
    assert_eq!(ports(&again.priorities), ports(&first.priorities));
    let other = translate(&mut with_seed(8), &policy, 1..41).unwrap();
    assert_ne!(ports(&other.priorities), ports(&first.priorities), "another channel");
    let all = translate(&mut with_seed(7), &LbPolicy::RoundRobin, 1..41).unwrap();
    assert!(all.listed.is_none() && ports(&all.priorities).len() == 40);
}

#[test]
fn ch3_62_subsets_are_of_the_level_at_which_they_are_configured() {
    let configured = |policy: LbPolicy| Configured::of(&policy);
    let in_locality =
        |policy| LbPolicy::WrrLocality(WrrLocality { endpoint_picking_policy: Box::new(policy) });
    let size = NonZeroU32::new;
    let it = configured(subset(9, in_locality(subset(3, LbPolicy::RoundRobin))));
    assert_eq!((it.subset.priority, it.subset.locality), (size(9), size(3)));
    assert!(it.policy.by_locality && it.unsupported.is_none());
    let it = configured(in_locality(subset(3, LbPolicy::RoundRobin)));
    assert_eq!((it.subset.priority, it.subset.locality), (None, size(3)));
    let first = LbPolicy::PickFirst(PickFirst { shuffle_address_list: true });
    let it = configured(subset(4, subset(2, subset(3, first))));
    assert_eq!((it.subset.priority, it.subset.locality), (size(2), None));
    let policy = Policy::PickFirst(pick_first::PickFirst { shuffle: true });
    assert_eq!(it.policy, ClusterPolicy { policy, by_locality: false });
    let it = configured(in_locality(in_locality(LbPolicy::RoundRobin)));
    assert_eq!(it.unsupported.as_deref(), Some("wrr_locality in wrr_locality"));
}

#[test]
fn ch8_10_ch8_14_draining_endpoints_are_for_cookies_alone_and_others_by_their_health() {
    let endpoints = ["10.0.0.1:80 HEALTHY", "10.0.0.2:80 DRAINING", "10.0.0.3:80 UNHEALTHY", "10.0.0.4:80"];
    let snapshot = snapshot("shop").eds("cart", &[&endpoints[..3], &endpoints[3..]]).build();
    let view = snapshot.cluster("cart").unwrap();
    let (cluster, assignment) = (view.config().unwrap(), view.assignment().unwrap());
    let endpoints = Endpoints::new(&Security::Plaintext, false);
    let usable: Vec<_> =
        endpoints.priorities(assignment).into_iter().flatten().flat_map(|it| it.endpoints).collect();
    assert_eq!(addresses(&usable), ["10.0.0.1:80", "10.0.0.4:80"]);
    let HostsConfig { draining, allows_draining, forbidden, idle_timeout } =
        hosts(cluster, Some(assignment), &endpoints);
    assert_eq!((addresses(&draining), allows_draining), (vec!["10.0.0.2:80".to_owned()], false));
    assert_eq!((forbidden.len(), idle_timeout), (0, Duration::from_secs(3_600)));
    let mut cluster = Cluster::clone(cluster);
    cluster.override_host_status.draining = true;
    cluster.override_host_status.unknown = false;
    let HostsConfig { allows_draining, forbidden, .. } = hosts(&cluster, Some(assignment), &endpoints);
    assert!(allows_draining);
    assert_eq!(forbidden.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.4:80"]);
}

fn addresses(endpoints: &[EndpointConfig]) -> Vec<String> {
    endpoints.iter().flat_map(|it| &it.addresses).map(ToString::to_string).collect()
}

#[test]
fn ch7_1_ch7_2_credentials_decide_what_becomes_of_the_tls_of_clusters() {
    let tls = UpstreamTls {
        identity: None,
        roots: Roots::System,
        san_matchers: [].into(),
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    };
    let security = |credentials: EndpointCredentials, tls: Option<&UpstreamTls>| {
        let mut translation =
            Translation::new(&BalancerSettings { credentials, ..BalancerSettings::with_seed(1) });
        let mut entry = eds("cart", &[&["10.0.0.1:80"]]);
        let cluster = (**entry.config.as_ref().unwrap()).clone();
        entry.config = Some(Arc::new(Cluster { tls: tls.cloned().map(Box::new), ..cluster }));
        let snapshot = Arc::new(snapshot("shop").entry(entry).build());
        let changes = translation.translate(&snapshot, |name| name == "cart", (vec!["cart".into()], vec![]));
        let leaf = changes.leaves[0].1.clone().unwrap();
        let endpoints = leaf.priorities.iter().flatten().flat_map(|locality| &locality.endpoints);
        let used: Vec<_> = endpoints.map(|endpoint| endpoint.identity.security().clone()).collect();
        (used, leaf.note.as_deref().map(str::to_owned), translation.leaves["cart"].warned.len())
    };
    use EndpointCredentials::{Insecure, Unset};
    let xds = |fallback: Security| EndpointCredentials::Xds { fallback };
    let all = |security: Security| (vec![security], None, 0);
    assert_eq!(security(Unset, Some(&tls)), (vec![], Some(NO_CREDENTIALS.to_owned()), 1), "it fails closed");
    assert_eq!(security(Unset, None), all(Security::Plaintext));
    assert_eq!(security(Insecure, Some(&tls)), all(Security::Plaintext));
    assert_eq!(security(Insecure, None), all(Security::Plaintext));
    assert_eq!(security(xds(Security::Fallback), Some(&tls)), all(Security::of_cluster(&tls)));
    assert_eq!(security(xds(Security::Fallback), None), all(Security::Fallback));
    assert_eq!(security(xds(Security::Plaintext), Some(&tls)), all(Security::of_cluster(&tls)));
}

#[test]
fn ch11_12_warnings_are_kept_for_what_is_configured_now() {
    let mut translation = Translation::new(&BalancerSettings::with_seed(1));
    let snapshot = Arc::new(snapshot("shop").entry(eds("cart", &[&["10.0.0.1:80"]])).build());
    translation.translate(&snapshot, |name| name == "cart", (vec!["cart".into()], vec![]));
    for update in 0..100 {
        translation.warn(&"cart".into(), [format!("policy {update}")].into());
        assert_eq!(translation.leaves["cart"].warned.len(), 1, "update {update}");
    }
    translation.warn(&"gone".into(), ["policy".to_owned()].into());
    assert_eq!(translation.leaves.len(), 1);
}
