//! What it costs to find the route of a request, and the virtual host of a host, beside looking at all in turn: `cargo bench
//! --bench routes`, or with `-- --quick` a short form of it.
//!
//! - *any*: requests for all entries of the table, in an order without a pattern.
//! - *last*: the same request for the last entry, again and again.
//! - *none*: requests that nothing in the table is for.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use prost::Message;
use ratio::{Candidate, Rounds};
use xdskit::{
    Resource, RouteQuery,
    pb::{envoy::config::route::v3::Route, google::protobuf::BoolValue},
    resource::{Context, RouteConfiguration, VirtualHost},
    testing::resources::{RouteBuilder, RouteConfigBuilder, route, route_config},
};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (sizes, rounds): (&[usize], usize) = match quick {
        true => (&[10, 100], 3),
        false => (&[10, 100, 1_000, 10_000], 21),
    };
    println!("ns per search, medians of {rounds} rounds in turns; growth: beside the smallest table\n");
    println!(
        "{:<10}{:<10}{:>8}{:>10}{:>10}{:>10}{:>10}",
        "table of", "searched", "entries", "searched", "growth", "in turn", "ratio"
    );
    for kind in KINDS {
        for (searched, wanted) in [("any", Expected::Any), ("last", Expected::Last), ("none", Expected::None)]
        {
            let tables: Vec<_> = sizes.iter().map(|size| Table::new(kind, *size, wanted)).collect();
            let all_at_once =
                tables.iter().map(|table| Candidate::kept("searched", || table.search(kind.find)));
            let in_turn =
                tables.iter().map(|table| Candidate::kept("in turn", || table.search_some(kind.scan)));
            let taken = Rounds::of(all_at_once.chain(in_turn).collect(), rounds);
            let rows: Vec<_> = taken.rows().map(|(_, ns, growth)| (ns, growth)).collect();
            let (searched_rows, rows_in_turn) = rows.split_at(sizes.len());
            for ((table, (ns, growth)), (ns_in_turn, _)) in tables.iter().zip(searched_rows).zip(rows_in_turn)
            {
                let size = table.size;
                let (ns, ns_in_turn) = (ns / SEARCHES as f64, ns_in_turn / table.some() as f64);
                let ratio = ns / ns_in_turn;
                println!(
                    "{:<10}{searched:<10}{size:>8}{ns:>10.0}{growth:>10.2}{ns_in_turn:>10.0}{ratio:>10.3}",
                    kind.name
                );
            }
        }
    }
}

/// What is searched, how an entry of a number looks and what is searched for to find it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    build: fn(usize) -> RouteConfigBuilder,
    wanted: fn(usize) -> String,
    find: fn(&RouteConfiguration, &str) -> bool,
    scan: fn(&RouteConfiguration, &str) -> bool,
}

const KINDS: [Kind; 6] = [
    Kind { name: "paths", build: |size| of_routes(size, path_route), ..ROUTES },
    Kind { name: "prefixes", build: |size| of_routes(size, prefix_route), ..ROUTES },
    Kind { name: "any case", build: |size| of_routes(size, any_case_route), ..ROUTES },
    Kind { name: "regexes", build: |size| of_routes(size, regex_route), ..ROUTES },
    Kind { name: "domains", build: |size| of_hosts(size, host), ..HOSTS },
    Kind { name: "wildcards", build: |size| of_hosts(size, wildcard), ..HOSTS },
];

const ROUTES: Kind = Kind {
    name: "routes",
    build: |size| of_routes(size, path_route),
    wanted: path,
    find: |config, path| RouteQuery::new(path, 0).route_in(&config.virtual_hosts[0]).is_some(),
    scan: |config, path| first_in_turn(&config.virtual_hosts[0], path),
};

const HOSTS: Kind = Kind {
    name: "hosts",
    build: |size| of_hosts(size, host),
    wanted: host,
    find: |config, host| config.virtual_host_index(host).is_some(),
    scan: |config, host| {
        let fits = config.virtual_hosts.iter().filter_map(|virtual_host| virtual_host.fit(host));
        fits.max().is_some()
    },
};

/// The first route that matches, as one finds it without an index.
fn first_in_turn(host: &VirtualHost, path: &str) -> bool {
    host.routes.iter().any(|route| {
        route.matcher.path.matches(path)
            && route.matcher.headers.is_empty()
            && route.matcher.fraction.is_none()
    })
}

fn of_routes(size: usize, route: fn(usize) -> RouteBuilder) -> RouteConfigBuilder {
    route_config("routes").virtual_host(["*"], (0..size).map(route))
}

fn of_hosts(size: usize, host: fn(usize) -> String) -> RouteConfigBuilder {
    let routes = || [route::prefix("/").cluster("c")];
    (0..size).fold(route_config("routes"), |config, i| config.virtual_host([host(i)], routes()))
}

fn path_route(i: usize) -> RouteBuilder {
    route::path(path(i)).cluster("c")
}

fn prefix_route(i: usize) -> RouteBuilder {
    route::prefix(service(i)).cluster("c")
}

fn any_case_route(i: usize) -> RouteBuilder {
    let any_case = |route: &mut Route| {
        let matcher = route.r#match.as_mut().expect("it has one");
        matcher.case_sensitive = Some(BoolValue { value: false });
    };
    path_route(i).edit(any_case)
}

fn regex_route(i: usize) -> RouteBuilder {
    route::regex(format!("{}.*", service(i).replace('.', r"\."))).cluster("c")
}

fn service(i: usize) -> String {
    format!("/shop.v1.Service{i}/")
}

fn path(i: usize) -> String {
    format!("{}ListEverything", service(i))
}

fn host(i: usize) -> String {
    format!("service-{i}.shop.svc.cluster.local")
}

fn wildcard(i: usize) -> String {
    host(i).replacen("service", "*", 1)
}

#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Any,
    Last,
    None,
}

/// A table, and what is searched for in it.
struct Table {
    size: usize,
    config: RouteConfiguration,
    wanted: Vec<String>,
    is_there: bool,
}

impl Table {
    fn new(kind: Kind, size: usize, wanted: Expected) -> Self {
        let bytes = (kind.build)(size).into_message().encode_to_vec();
        let config = RouteConfiguration::parse(&bytes.into(), &Context::new()).expect("accepted");
        let number = |i: usize| match wanted {
            // All numbers below the size in turn, far apart.
            Expected::Any => i * 7_919 % size,
            Expected::Last => size - 1,
            Expected::None => size + i,
        };
        let wanted_texts = (0..SEARCHES).map(|i| (kind.wanted)(number(i))).collect();
        Self { size, config, wanted: wanted_texts, is_there: wanted != Expected::None }
    }

    /// Searches for everything once.
    fn search(&self, find: fn(&RouteConfiguration, &str) -> bool) {
        for wanted in &self.wanted {
            assert_eq!(find(&self.config, wanted), self.is_there, "{wanted}");
        }
    }

    /// Searches for some of it once, where all of it would take long.
    fn search_some(&self, find: fn(&RouteConfiguration, &str) -> bool) {
        for wanted in &self.wanted[..self.some()] {
            assert_eq!(find(&self.config, wanted), self.is_there, "{wanted}");
        }
    }

    fn some(&self) -> usize {
        (200_000 / self.size).clamp(50, SEARCHES)
    }
}

/// In each turn.
const SEARCHES: usize = 1_000;
