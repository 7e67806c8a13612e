//! Logical DNS: when hosts are looked up, and what is made of the answers.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use super::rig::Rig;
use crate::{
    base::WatchId,
    resolve::{Addresses, DnsResolver, HostOrder, LookupId},
    resource::cluster::HostPort,
    testing::resources::{cluster, listener, route, route_config},
};

const REFRESH: Duration = Duration::from_secs(30);
const NONE: [&str; 0] = [];

struct Dns {
    hosts: DnsResolver,
    now: Instant,
    begin: Instant,
    random: fastrand::Rng,
}

impl Dns {
    fn new() -> Self {
        let now = Instant::now();
        let hosts = DnsResolver::new(Duration::from_secs(30), Duration::from_secs(15));
        Self { hosts, now, begin: now, random: fastrand::Rng::with_seed(1) }
    }

    fn watch(&mut self, watch_id: u64, host: &str, port: u16) -> Vec<String> {
        self.hosts.watch(WatchId::new(watch_id), &address(host, port), self.now);
        self.orders()
    }

    fn answer(&mut self, lookup: u64, ips: &[&str]) -> Vec<String> {
        self.resolved(lookup, Ok(addresses(ips)))
    }

    fn fail(&mut self, lookup: u64) -> Vec<String> {
        self.resolved(lookup, Err("no such host".into()))
    }

    fn resolved(&mut self, lookup: u64, result: Result<Addresses, String>) -> Vec<String> {
        self.hosts.on_resolved(LookupId(lookup), result, self.now, &mut self.random);
        self.orders()
    }

    /// Lets time pass; each notification carries its second.
    fn pass(&mut self, time: Duration) -> Vec<String> {
        let until = self.now + time;
        let mut orders = Vec::new();
        while let Some(at) = self.hosts.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.hosts.handle_timeout(self.now, &mut self.random);
            let second = (self.now - self.begin).as_secs();
            orders.extend(self.orders().into_iter().map(|orders| format!("{second} s: {orders}")));
        }
        self.now = until;
        orders
    }

    fn orders(&mut self) -> Vec<String> {
        let orders = std::iter::from_fn(|| self.hosts.poll());
        orders
            .map(|order| match order {
                HostOrder::LookUp { lookup, host } => format!("look up {host} ({})", lookup.0),
                HostOrder::Notify { address, seen, .. } => {
                    let good = seen.assignment().map(|good| {
                        let all = good.endpoints().flat_map(|endpoint| endpoint.addresses());
                        all.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
                    });
                    format!("{address}: {:?} {:?}", good, seen.error())
                }
            })
            .collect()
    }
}

fn address(host: &str, port: u16) -> HostPort {
    HostPort { host: host.into(), port }
}

fn addresses(ips: &[&str]) -> Addresses {
    Addresses::new(ips.iter().map(|ip| ip.parse::<IpAddr>().expect("an address")))
}

#[test]
fn an_answer_that_holds_for_the_greatest_length_is_not_looked_up_again() {
    let mut dns = Dns::new();
    dns.watch(1, "a", 80);
    dns.resolved(1, Ok(addresses(&["10.0.0.1"]).with_ttl(Duration::MAX)));
    assert_eq!(dns.pass(1_000_000 * REFRESH), NONE);
}

#[test]
fn f5_one_lookup_for_each_host_whoever_wants_it() {
    let mut dns = Dns::new();
    assert_eq!(dns.watch(1, "db", 80), ["look up db (1)"]);
    assert_eq!(dns.watch(2, "db", 81), NONE);
    assert_eq!(dns.watch(3, "cache", 80), ["look up cache (2)"]);
    let orders = dns.answer(1, &["10.0.0.1"]);
    assert_eq!(orders, ["db:80: Some(\"10.0.0.1:80\") None", "db:81: Some(\"10.0.0.1:81\") None"]);
    assert_eq!(dns.watch(4, "db", 80), ["db:80: Some(\"10.0.0.1:80\") None"]);
    assert_eq!(dns.answer(1, &["10.0.0.2"]), NONE, "an answer counts once");
}

#[test]
fn f5_the_first_failure_is_published_and_later_ones_keep_the_last_known_good() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    let error = r#"Some("dns resolver error for target \"dns:///db\": no such host")"#;
    assert_eq!(dns.fail(1), [format!("db:80: None {error}")]);
    let again = dns.pass(Duration::from_secs(2));
    assert!(again.len() == 1 && again[0].ends_with("look up db (2)"), "{again:?}");
    assert_eq!(dns.answer(2, &["10.0.0.1"]), ["db:80: Some(\"10.0.0.1:80\") None"]);
    dns.pass(REFRESH);
    assert_eq!(dns.fail(3), [format!("db:80: Some(\"10.0.0.1:80\") {error}")]);
    dns.pass(Duration::from_secs(2));
    assert_eq!(dns.fail(4), NONE, "an equal state is not published twice");
}

#[test]
fn failures_are_repeated_with_growing_delays() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    let mut delays = Vec::new();
    for lookup in 1..12 {
        let before = dns.now;
        dns.fail(lookup);
        let at = dns.hosts.next_timeout().expect("another try");
        delays.push((at - before).as_secs_f64());
        dns.now = at;
        dns.hosts.handle_timeout(at, &mut dns.random);
        assert_eq!(dns.orders(), [format!("look up db ({})", lookup + 1)]);
    }
    assert!(delays[0] <= 1.2 && delays[3] > 2.0 && delays.iter().all(|delay| *delay <= 144.0), "{delays:?}");
}

#[test]
fn a_host_without_addresses_is_a_failure() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    assert!(dns.answer(1, &[])[0].contains("there are no addresses"));
}

#[test]
fn a_lookup_without_an_answer_is_given_up() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    let orders = dns.pass(Duration::from_secs(15));
    assert_eq!(
        orders,
        [r#"15 s: db:80: None Some("dns resolver error for target \"dns:///db\": no answer in 15s")"#]
    );
    assert_eq!(dns.answer(1, &["10.0.0.1"]), NONE, "too late");
}

#[test]
fn a_host_is_looked_up_again_when_its_answer_has_run_out() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    dns.resolved(1, Ok(addresses(&["10.0.0.1"]).with_ttl(Duration::from_secs(100))));
    assert_eq!(dns.pass(Duration::from_secs(99)), NONE);
    assert_eq!(dns.pass(Duration::from_secs(1)), ["100 s: look up db (2)"]);
    assert_eq!(dns.answer(2, &["10.0.0.1"]), NONE, "an equal state is not published twice");
    let orders = dns.pass(REFRESH);
    assert_eq!(orders, ["130 s: look up db (3)"], "without a TTL, or with a short one, after the least time");
}

#[test]
fn a74_7_a_requested_lookup_waits_for_the_minimum_interval() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    dns.resolved(1, Ok(addresses(&["10.0.0.1"]).with_ttl(Duration::from_secs(1000))));
    dns.pass(Duration::from_secs(10));
    dns.hosts.look_up_again(WatchId::new(1), dns.now);
    assert_eq!(dns.orders(), NONE);
    assert_eq!(dns.pass(REFRESH), ["30 s: look up db (2)"]);
    dns.resolved(2, Ok(addresses(&["10.0.0.2"]).with_ttl(Duration::from_secs(1000))));
    dns.pass(REFRESH * 2);
    dns.hosts.look_up_again(WatchId::new(2), dns.now);
    assert_eq!(dns.orders(), NONE, "it is none of theirs");
    dns.hosts.look_up_again(WatchId::new(1), dns.now);
    assert_eq!(dns.orders(), ["look up db (3)"]);
}

#[test]
fn an_address_is_not_looked_up() {
    let mut dns = Dns::new();
    assert_eq!(dns.watch(1, "10.0.0.1", 80), ["10.0.0.1:80: Some(\"10.0.0.1:80\") None"]);
    assert_eq!(dns.watch(1, "::1", 80), ["[::1]:80: Some(\"[::1]:80\") None"]);
    assert_eq!(dns.hosts.next_timeout(), None);
}

#[test]
fn what_nobody_wants_is_not_looked_up_again() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    dns.watch(2, "db", 80);
    dns.answer(1, &["10.0.0.1"]);
    dns.hosts.unwatch(WatchId::new(1), &address("db", 80));
    assert!(dns.hosts.next_timeout().is_some());
    dns.hosts.unwatch(WatchId::new(2), &address("db", 80));
    assert_eq!(dns.hosts.next_timeout(), None);
}

#[test]
fn no_more_than_64_hosts_are_looked_up_at_a_time() {
    let mut dns = Dns::new();
    let hosts: Vec<_> = (0..100).map(|host| format!("h{host:02}")).collect();
    let orders: Vec<_> =
        (1..).zip(&hosts).flat_map(|(watch_id, host)| dns.watch(watch_id, host, 80)).collect();
    assert_eq!(orders.len(), 64);
    assert_eq!(dns.answer(1, &["10.0.0.1"]).last().unwrap(), "look up h64 (65)");
    // Who waits may go, and so may who is looked up, whose lookup goes on.
    dns.hosts.unwatch(WatchId::new(66), &address("h65", 80));
    dns.hosts.unwatch(WatchId::new(2), &address("h01", 80));
    assert_eq!(dns.orders(), NONE);
    assert_eq!(dns.answer(2, &["10.0.0.1"]), ["look up h66 (66)"]);
    // What is never answered gives its place to the others.
    let orders = dns.pass(Duration::from_secs(15));
    let looked_up = orders.iter().filter(|orders| orders.contains("look up")).count();
    assert_eq!(looked_up, 33, "{orders:?}");
    assert!(orders.iter().all(|orders| orders.starts_with("15 s: ")), "{orders:?}");
}

#[test]
fn hosts_are_found_by_their_deadlines_whatever_comes_and_goes() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut dns = Dns::new();
    let mut watched = Vec::new();
    for step in 1..5_000 {
        match random.u32(..6) {
            0 | 1 => {
                let host = format!("h{}", random.u32(..150));
                dns.watch(step, &host, 80);
                watched.push((step, host));
            }
            2 if !watched.is_empty() => {
                let (watch_id, host) = watched.swap_remove(random.usize(..watched.len()));
                dns.hosts.unwatch(WatchId::new(watch_id), &address(&host, 80));
                dns.orders();
            }
            3 => drop(dns.answer(random.u64(1..step + 1), &["10.0.0.1"])),
            4 => drop(dns.fail(random.u64(1..step + 1))),
            _ => drop(dns.pass(Duration::from_millis(random.u64(..5_000)))),
        }
        dns.hosts.check();
    }
}

#[test]
fn times_that_no_clock_can_show_are_as_good_as_never() {
    let mut dns = Dns { hosts: DnsResolver::new(Duration::MAX, Duration::MAX), ..Dns::new() };
    dns.watch(1, "db", 80);
    assert!(dns.hosts.next_timeout().is_some());
    dns.resolved(1, Ok(addresses(&["10.0.0.1"]).with_ttl(Duration::MAX)));
    assert_eq!(dns.pass(Duration::from_secs(86_400)), NONE);
}

#[test]
fn a37_5_dns_gives_one_endpoint_with_all_addresses_in_one_locality() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    dns.hosts.on_resolved(LookupId(1), Ok(addresses(&["10.0.0.1", "10.0.0.2"])), dns.now, &mut dns.random);
    let Some(HostOrder::Notify { seen, .. }) = dns.hosts.poll() else { panic!("no notification") };
    let assignment = seen.assignment().expect("addresses");
    assert_eq!(assignment.priorities.len(), 1);
    assert_eq!(assignment.localities().count(), 1);
    assert_eq!(assignment.localities().next().expect("one").locality, Default::default());
    assert_eq!(assignment.endpoints().count(), 1);
    assert_eq!(assignment.endpoints().next().expect("one").hostname(), Some("db:80"), "A81-1");
}

#[test]
fn f5_a_dns_cluster_is_ready_with_addresses_or_an_error() {
    let mut dns = Dns::new();
    dns.watch(1, "db", 80);
    dns.fail(1);
    dns.hosts.watch(WatchId::new(2), &address("db", 80), dns.now);
    let Some(HostOrder::Notify { address, seen, .. }) = dns.hosts.poll() else { panic!("no notification") };

    let mut rig = Rig::new();
    let routes = route_config("").virtual_host(["shop"], [route::prefix("/").cluster("a")]);
    rig.listener(listener("shop").inline_routes(routes));
    assert_eq!(rig.cluster(cluster("a").logical_dns("db", 80)), ["+host db:80"]);
    assert_eq!(rig.host(&address, seen), [": a(UNAVAILABLE)"]);
    dns.pass(Duration::from_secs(2));
    dns.hosts.on_resolved(LookupId(2), Ok(addresses(&["10.0.0.1", "10.0.0.2"])), dns.now, &mut dns.random);
    let Some(HostOrder::Notify { seen, .. }) = dns.hosts.poll() else { panic!("no notification") };
    assert_eq!(rig.host(&address, seen), [": a=10.0.0.1:80,10.0.0.2:80"]);
}
