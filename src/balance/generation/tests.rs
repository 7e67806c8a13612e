use std::net::SocketAddr;

use super::*;
use crate::{
    balance::{
        command::Command, identity::Destination, pick_args::CallAttributes, pick_first::PickFirstSettings,
        settings::BalancerSettings, stream_queue::streams::Streams,
    },
    error::Code,
    resolve::fixture::{error, snapshot, with_warning, without},
    resource::Listener,
};

/// A channel whose attempts to connect succeed. The handle of a connection is its address.
struct Fixture {
    generations: Generations<SocketAddr>,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let pick_first = PickFirstSettings::default();
        let settings =
            BalancerSettings { pick_first, max_concurrent_connects: 9, ..BalancerSettings::with_seed(1) };
        let balancer = Balancer::new(settings, Arc::default());
        Self { generations: Generations::new(balancer, Arc::new(|| {})), now: Instant::now() }
    }

    /// The generation that follows from a snapshot, before anything is connected.
    fn resolve(&mut self, snapshot: Snapshot) -> Option<Generation<SocketAddr>> {
        self.generations.handle_resolution(Ok(Arc::new(snapshot)), self.now);
        self.generations.poll_generation(self.now)
    }

    /// The generation after all attempts.
    fn connect(&mut self) -> Generation<SocketAddr> {
        while let Some(command) = self.generations.balancer.poll_command(self.now) {
            if let Command::Connect { connection, destination: Destination { address, .. }, .. } = command {
                self.generations.balancer.on_connected(
                    connection,
                    Streams::new(address, usize::MAX),
                    self.now,
                );
            }
        }
        self.generations.poll_generation(self.now).expect("it changed")
    }
}

fn pick(generation: &Generation<SocketAddr>) -> Pick<SocketAddr> {
    let query = RouteQuery::new("/", 0);
    let selection = generation.select(&query);
    let Selection::Selected(selected) = selection else { panic!("{selection:?}") };
    let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::with_seed(1));
    generation.pick(selected.cluster.place(), &mut PickArgs { attributes, random, request: &query })
}

/// The addresses that picks lead to.
fn picked(generation: &Generation<SocketAddr>) -> BTreeSet<String> {
    let address = |_| {
        let pick = pick(generation);
        let Pick::Complete(attempt) = pick else { panic!("{pick:?}") };
        attempt.endpoint.address.to_string()
    };
    (0..10).map(address).collect()
}

#[test]
fn ch1_19_a_route_to_a_cluster_that_the_configuration_lacks_fails_with_internal() {
    let mut it = Fixture::new();
    let complete = snapshot("shop").eds("cart", &[&["10.0.0.1:80"]]).build();
    let generation = it.resolve(without(&complete, "cart")).unwrap();
    let pick = pick(&generation);
    assert!(
        matches!(&pick, Pick::Unknown(reason) if &**reason == "cluster cart is not in the configuration"),
        "{pick:?}"
    );
    it.resolve(complete);
    assert!(picked(&it.connect()).iter().eq(["10.0.0.1:80"]));
}

#[test]
fn ch1_23_a_cluster_that_returns_has_its_current_endpoints() {
    let mut it = Fixture::new();
    it.resolve(snapshot("shop").eds("cart", &[&["10.0.0.1:80", "10.0.0.2:80"]]).build());
    assert!(picked(&it.connect()).iter().eq(["10.0.0.1:80", "10.0.0.2:80"]));
    it.resolve(snapshot("shop").eds("wine", &[&["10.0.0.3:80"]]).build());
    assert!(picked(&it.connect()).iter().eq(["10.0.0.3:80"]));
    let returned = it.resolve(snapshot("shop").eds("cart", &[&["10.0.0.2:80"]]).build()).unwrap();
    assert!(matches!(pick(&returned), Pick::Queue), "nothing is left of what it was");
    assert!(picked(&it.connect()).iter().eq(["10.0.0.2:80"]));
}

#[test]
fn ch1_9_a_warning_of_the_listener_is_a_note_and_no_other_route() {
    let mut it = Fixture::new();
    let first = snapshot("shop").eds("cart", &[&["10.0.0.1:80"]]).build();
    it.resolve(first.clone());
    let connected = it.connect();
    assert_eq!(connected.stale_config, None);
    let stale = with_warning(&first, error::<Listener>("shop", Code::Unavailable, "the server is away"));
    let generation = it.resolve(stale.clone()).unwrap();
    let note = "Listener \"shop\": the server is away [node id: test]";
    assert_eq!(&**generation.stale_config.as_ref().unwrap().text(), note);
    assert_eq!(generation.routes_since(), connected.routes_since(), "no call selects again");
    assert!(picked(&generation).iter().eq(["10.0.0.1:80"]));
    assert!(it.resolve(stale).is_none(), "it is the same");
    assert_eq!(it.resolve(first).unwrap().stale_config, None);
}

#[test]
fn ch3_51_ch3_50_endpoints_that_are_not_usable_have_no_weight() {
    let mut translation = Translation::new(&BalancerSettings::with_seed(1));
    let endpoints = ["10.0.0.1:80", "10.0.0.2:80 UNHEALTHY", "10.0.0.3:80 DRAINING", "10.0.0.4:80 HEALTHY"];
    let snapshot = Arc::new(snapshot("shop").eds("cart", &[&endpoints]).build());
    let changes = translation.translate(&snapshot, |_| true, (Vec::new(), Vec::new()));
    let (_, Some(leaf)) = &changes.leaves[0] else { panic!("it is there") };
    let addresses = leaf.priorities[0][0].endpoints.iter().map(|it| it.addresses[0].to_string());
    assert!(addresses.eq(["10.0.0.1:80", "10.0.0.4:80"]), "weights are summed over those that are listed");
}

#[test]
fn ch11_12_warnings_of_filters_are_kept_for_the_routes_now() {
    let mut it = Fixture::new();
    for update in 0..100 {
        let name = format!("example.filter_{update}");
        it.generations.unexecuted.warn_of_filters("xds:///shop", [&*name].into());
        assert_eq!(it.generations.unexecuted.filters, [name].into());
    }
    it.generations.unexecuted.warn_of_filters("xds:///shop", [].into());
    assert!(it.generations.unexecuted.filters.is_empty());
}
