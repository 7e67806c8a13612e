//! What is held for each resource: `cargo bench --bench memory`, or with `-- --quick` a short form of it.
//!
//! N resources of a type come in one response, and are held:
//!
//! - *named*: by N watches, one a name.
//! - *wildcard*: by one watch of everything.
//! - *renewed*: by N watches, after each has come once more in a response of its own.
//! - *messages*: decoded into the generated messages, and nothing else.
//!
//! What there is for each is everything that was not there before: the bytes that it was parsed from, the typed value, what the
//! client knows of it, its names, what was published of it, and the watches. A process of its own measures each case, so that its
//! peak is that of nothing else.

mod feed;
#[allow(dead_code, reason = "other benches use more of it")]
mod plain;

use std::{alloc::System, env, fs, hint::black_box, process::Command};

use bytes::Bytes;
use feed::Feed;
use plain::{ASSIGNMENTS, CLUSTERS};
use prost::Message;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use xdskit::{
    Observed, Resource, Watch,
    config::ApiType,
    pb::{
        envoy::{
            config::{cluster::v3 as cluster, endpoint::v3 as endpoint},
            service::discovery::v3::DiscoveryResponse,
        },
        google::protobuf::Any,
    },
    resource::{Cluster, ClusterLoadAssignment},
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let args: Vec<_> = env::args().skip(1).collect();
    if let Some([kind, case, count]) = args.strip_prefix(&["measure".to_owned()]) {
        let count = count.parse().expect("a number");
        let held = match kind.as_str() {
            "clusters" => KINDS[0].measure::<Cluster, cluster::Cluster>(case, count),
            _ => KINDS[1].measure::<ClusterLoadAssignment, endpoint::ClusterLoadAssignment>(case, count),
        };
        return println!("{} {} {} {}", held.bytes, held.allocations, held.made, held.peak);
    }
    let counts: &[usize] = match args.iter().any(|arg| arg == "--quick") {
        true => &[1_000, 10_000],
        false => &[1_000, 10_000, 100_000],
    };
    println!(
        "per resource; x: beside the size of its bytes; peak: of the process, beyond what it had before"
    );
    for kind in &KINDS {
        let wire = (kind.make)(0, 0).len();
        println!("\n{} of {wire} bytes", kind.name);
        println!("  {:<10}{:>8}{:>8}{:>8}", "", "N", "bytes", "x");
        for case in CASES {
            for count in counts.iter().filter(|count| kind.can(case, **count)) {
                kind.report(case, *count, wire);
            }
        }
    }
}

/// A type of resource, and how to make one by its number and turn.
struct Kind {
    name: &'static str,
    type_url: &'static str,
    make: fn(usize, u32) -> Bytes,
}

/// What is held more than before.
struct Held {
    bytes: isize,
    /// How many allocations are held, and how many were made.
    allocations: isize,
    made: usize,
    /// The most that the process had resident meanwhile, in bytes; 0 where that is not known.
    peak: usize,
}

impl Kind {
    /// Clusters come all together. And each response is answered with all names, so that renewing very many takes very long.
    fn can(&self, case: &str, count: usize) -> bool {
        case != "renewed" || (self.name == "assignments" && count <= 10_000)
    }

    /// Measures a case in a process of its own.
    fn report(&self, case: &str, count: usize, wire: usize) {
        let program = env::current_exe().expect("this program has a path");
        let child = Command::new(program).args(["measure", self.name, case, &count.to_string()]).output();
        let told = String::from_utf8(child.expect("it can be started").stdout).expect("text");
        let each: Vec<_> = told
            .split_whitespace()
            .map(|number| number.parse::<f64>().expect("a number") / count as f64)
            .collect();
        let [bytes, allocations, made, peak] = each[..] else { panic!("the measurement has failed: {told}") };
        println!(
            "  {case:<10}{count:>8}{bytes:>8.0}{:>8.2}  {allocations:>5.2} allocations of {made:>6.2} made, peak {peak:>6.0}",
            bytes / wire as f64
        );
    }

    fn measure<T: Resource, M: Message + Default>(&self, case: &str, count: usize) -> Held {
        let feed = Feed::new(ApiType::AggregatedGrpc);
        let mut before = Before::new();
        let response = if case == "messages" { Bytes::new() } else { self.response(count) };
        before.begin();
        match case {
            "named" => before.after(named::<T>(&feed, count, response)),
            "wildcard" => before.after(wildcard::<T>(&feed, count, response)),
            "renewed" => {
                let watches = named::<T>(&feed, count, response);
                for number in 0..count {
                    let renewed = [(self.make)(number, 1)];
                    feed.answer(plain::response(2 + number, self.type_url, &renewed));
                    feed.forget();
                }
                before.after(watches)
            }
            _ => {
                let decode = |number| M::decode((self.make)(number, 0)).expect("valid");
                before.after((0..count).map(decode).collect::<Vec<_>>())
            }
        }
    }

    /// With no more room than it needs, and nothing else beside it while it is made.
    fn response(&self, count: usize) -> Bytes {
        let resource = |number| {
            let value = (self.make)(number, 0);
            let resources = vec![Any { type_url: self.type_url.into(), value }];
            DiscoveryResponse { resources, ..DiscoveryResponse::default() }
        };
        let length = (0..count).map(|number| resource(number).encoded_len()).sum::<usize>();
        let head = plain::response(1, self.type_url, &[]);
        let mut response = Vec::with_capacity(head.len() + length);
        response.extend_from_slice(&head);
        // A repeated field may come in parts.
        (0..count).for_each(|number| resource(number).encode(&mut response).expect("there is room"));
        response.into()
    }
}

fn named<T: Resource>(feed: &Feed, count: usize, response: Bytes) -> Vec<Watch<T>> {
    let watches: Vec<_> = (0..count).map(|number| feed.client().watch(plain::name(number))).collect();
    // Counted without making any of them.
    feed.until_asked_for(count, |request| request.windows(NAME.len()).filter(|part| *part == NAME).count());
    feed.answer(response);
    feed.forget();
    let is_there = |watch: &Watch<T>| matches!(*watch.latest(), Observed::Present { .. });
    assert!(watches.iter().all(is_there), "all are there");
    watches
}

fn wildcard<T: Resource>(feed: &Feed, count: usize, response: Bytes) -> impl Sized + use<T> {
    let watch = feed.client().watch_all::<T>("*");
    // An empty list asks for everything.
    feed.until_asked_for(1, |_| 1);
    feed.answer(response);
    feed.forget();
    let members = watch.latest().expect("it was answered");
    assert_eq!(members.iter().filter(|(_, seen)| seen.is_present()).count(), count);
    (watch, members)
}

/// What was there before.
struct Before {
    stats: Stats,
    resident: usize,
    /// How many allocations had been made when the client began to work.
    made: usize,
}

impl Before {
    fn new() -> Self {
        let stats = ALLOCATOR.stats();
        Self { stats, resident: kilobytes("VmRSS:"), made: made(&stats) }
    }

    /// The client begins to work.
    fn begin(&mut self) {
        self.made = made(&ALLOCATOR.stats());
    }

    /// What is there more, while something is held.
    fn after<T>(&self, held: T) -> Held {
        let (now, before) = (ALLOCATOR.stats(), &self.stats);
        // What grows or shrinks in its place is counted among these.
        let bytes = |stats: &Stats| stats.bytes_allocated as isize - stats.bytes_deallocated as isize;
        let there = |stats: &Stats| stats.allocations as isize - stats.deallocations as isize;
        let peak = kilobytes("VmHWM:").saturating_sub(self.resident) << 10;
        black_box(held);
        Held {
            bytes: bytes(&now) - bytes(before),
            allocations: there(&now) - there(before),
            made: made(&now) - self.made,
            peak,
        }
    }
}

fn made(stats: &Stats) -> usize {
    stats.allocations + stats.reallocations
}

/// What the system says of this process; 0 where it says nothing.
fn kilobytes(what: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

const KINDS: [Kind; 2] = [
    Kind { name: "clusters", type_url: CLUSTERS, make: plain::cluster },
    Kind { name: "assignments", type_url: ASSIGNMENTS, make: plain::assignment },
];

/// How each name begins.
const NAME: &[u8] = b"outbound|8080||";

const CASES: [&str; 4] = ["named", "wildcard", "renewed", "messages"];
