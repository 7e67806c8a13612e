//! The choice of virtual host and route against a model that was written for being read, not for being quick.

use std::{ops::Range, ptr};

use proptest::prelude::*;

use super::*;
use crate::{
    pb::envoy::config::route::v3::RouteConfiguration as Message,
    resolve::fixture::parse,
    resource::{
        RouteConfiguration,
        matcher::model::{Condition, Text, a_condition, a_path, rank},
    },
};

/// The index of the best virtual host, found by comparing each with all others.
fn best(hosts: &[Vec<String>], host: &str) -> Option<usize> {
    let ranks = hosts.iter().map(|domains| domains.iter().filter_map(|domain| rank(domain, host)).max());
    let ranks: Vec<_> = ranks.collect();
    (0..hosts.len()).find(|&index| {
        ranks[index].is_some()
            && ranks.iter().all(|other| *other <= ranks[index])
            && ranks[..index].iter().all(|earlier| *earlier < ranks[index])
    })
}

#[derive(Debug, Clone)]
struct Header {
    name: String,
    condition: Condition,
    invert: bool,
    missing_is_empty: bool,
}

impl Header {
    fn matches(&self, headers: &[(String, String)]) -> bool {
        self.condition.matches(self.value(headers).as_deref(), self.invert)
    }

    fn value(&self, headers: &[(String, String)]) -> Option<String> {
        let name = self.name.to_lowercase();
        let hidden = name.starts_with(':') || name.ends_with("-bin");
        let named = headers.iter().filter(|(other, _)| !hidden && other.to_lowercase() == name);
        let values: Vec<_> = named.map(|(_, value)| value.as_str()).collect();
        match &values[..] {
            [] if name == "content-type" => Some("application/grpc".to_owned()),
            [] if self.missing_is_empty => Some(String::new()),
            [] => None,
            values => Some(values.join(",")),
        }
    }

    fn message(&self) -> route::HeaderMatcher {
        route::HeaderMatcher {
            treat_missing_header_as_empty: self.missing_is_empty,
            ..self.condition.message(&self.name, self.invert)
        }
    }
}

#[derive(Debug, Clone)]
struct Route {
    path: Text,
    ignore_case: bool,
    headers: Vec<Header>,
    /// Whether it is for all requests or for none.
    fraction: Option<bool>,
}

impl Route {
    fn matches(&self, path: &str, headers: &[(String, String)]) -> bool {
        let path = path.split('?').next().unwrap_or_default();
        self.fraction != Some(false)
            && self.path.matches(path, self.ignore_case)
            && self.headers.iter().all(|header| header.matches(headers))
    }

    fn message(&self) -> route::RouteMatch {
        let matcher = match &self.path {
            Text::Exact(text) => exact(text),
            Text::Prefix(text) => prefix(text),
            Text::PathSeparatedPrefix(text) => path_separated_prefix(text),
            Text::Regex(pattern) => regex(&pattern.text()),
            Text::Suffix(_) | Text::Contains(_) => unreachable!("no path is matched by its end or middle"),
        };
        let matcher = route::RouteMatch {
            headers: self.headers.iter().map(Header::message).collect(),
            case_sensitive: Some(BoolValue { value: !self.ignore_case }),
            ..matcher
        };
        match self.fraction {
            None => matcher,
            Some(all) => fraction(if all { 1_000_000 } else { 0 }, matcher),
        }
    }
}

fn a_header_name() -> impl Strategy<Value = String> {
    let names = ["x", "X", "y", "y-bin", "Y-BIN", ":x", "content-type", "Content-Type"];
    prop::sample::select(names.map(str::to_owned).to_vec())
}

fn a_header() -> impl Strategy<Value = Header> {
    let parts = (a_header_name(), a_condition(), any::<bool>(), any::<bool>());
    parts.prop_map(|(name, condition, invert, missing_is_empty)| Header {
        name,
        condition,
        invert,
        missing_is_empty,
    })
}

fn a_route() -> impl Strategy<Value = Route> {
    let headers = prop::collection::vec(a_header(), 0..3);
    let fraction = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let parts = (a_path(), headers, fraction);
    parts.prop_map(|((path, ignore_case), headers, fraction)| Route { path, ignore_case, headers, fraction })
}

/// A path, headers and a random number.
fn a_request() -> impl Strategy<Value = (String, Vec<(String, String)>, u64)> {
    let header = (a_header_name(), "[aAbB1]{0,2}|-[1-3]|[0-3]");
    (r"/?[aAbB/]{0,4}(\?[a/]{0,1})?", prop::collection::vec(header, 0..4), any::<u64>())
}

/// A virtual host with these routes.
fn host_with(list: impl IntoIterator<Item = route::RouteMatch>) -> VirtualHost {
    let list = list.into_iter().map(|matcher| route(matcher, to("a"))).collect();
    let message =
        Message { name: "r".into(), virtual_hosts: vec![virtual_host(&["*"], list)], ..Default::default() };
    parse::<RouteConfiguration>(&message).virtual_hosts[0].clone()
}

/// The place of the route that a request takes.
fn found(host: &VirtualHost, query: &RouteQuery<'_>) -> Option<usize> {
    let found = query.route_in(host)?;
    host.routes.iter().position(|route| ptr::eq(route, found))
}

fn a_list_of_hosts(count: Range<usize>) -> impl Strategy<Value = Vec<Vec<String>>> {
    let domains = prop::collection::vec(r"\*|\*?[aAb.]{1,3}|[aAb.]{1,3}\*|\*[a.]\*", 1..4);
    prop::collection::vec(domains, count)
}

/// A route that is one of many for the same paths, nested deeply.
fn a_nested_route() -> impl Strategy<Value = route::RouteMatch> {
    let path = prop_oneof![
        4 => "(aB){0,6}a?".prop_map(|text| prefix(&text)),
        1 => "(aB){0,6}a?".prop_map(|text| exact(&text)),
        1 => "(aB){1,6}a?(/a)?".prop_map(|text| path_separated_prefix(&text)),
        1 => r"(aB){0,4}(a|a\*|a\+|\(aB\)\?|\.|\.\*|\\\.|a\|B|\[aB\]\{2\})(aB){0,2}".prop_map(|text| regex(&text)),
    ];
    let conditions = (any::<bool>(), prop::option::weighted(0.5, 0..1_000_000_u32), any::<bool>());
    (path, conditions).prop_map(|(path, (ignore_case, part, has_header))| {
        let path = part.into_iter().fold(path, |path, part| fraction(part, path));
        let headers = has_header.then(|| header("x", PresentMatch(true)));
        let path = route::RouteMatch { headers: headers.into_iter().collect(), ..path };
        if ignore_case { ignoring_case(path) } else { path }
    })
}

proptest! {
    #[test]
    fn a28_1_the_virtual_host_is_the_best_one_of_the_model(
        hosts in prop_oneof![a_list_of_hosts(0..5), a_list_of_hosts(9..20)],
        names in prop::collection::vec("[abB.]{0,4}", 1..8),
    ) {
        let message = Message {
            name: "routes".into(),
            virtual_hosts: hosts.iter().map(|host| virtual_host(host, Vec::new())).collect(),
            ..Default::default()
        };
        let routes = parse::<RouteConfiguration>(&message);
        for name in names {
            prop_assert_eq!(routes.virtual_host_index(&name), best(&hosts, &name), "{}", name);
        }
    }

    #[test]
    fn a28_9_the_route_is_the_first_that_matches_in_the_model(
        list in prop_oneof![prop::collection::vec(a_route(), 1..6), prop::collection::vec(a_route(), 33..60)],
        requests in prop::collection::vec(a_request(), 1..8),
    ) {
        let host = host_with(list.iter().map(Route::message));
        for (path, headers, random) in &requests {
            let expected = list.iter().position(|route| route.matches(path, headers));
            let query = RouteQuery::new(path, *random).with_headers(headers);
            prop_assert_eq!(found(&host, &query), expected, "{} {:?}", path, headers);
        }
    }

    #[test]
    fn a28_9_a_search_gives_what_looking_at_all_routes_in_turn_gives(
        list in prop::collection::vec(a_nested_route(), 20..80),
        requests in prop::collection::vec(("(aB){0,7}a?[.b]?(/aB?)?", any::<bool>(), any::<u64>()), 1..20),
    ) {
        let host = host_with(list);
        for (path, has_header, random) in &requests {
            let query = RouteQuery::new(path, *random);
            let query = if *has_header { query.with_header("x", "") } else { query };
            let mut in_turn = host.routes.iter().enumerate();
            let expected = in_turn.position(|(place, route)| query.matches(&route.matcher, place));
            prop_assert_eq!(found(&host, &query), expected, "{:?}", query);
        }
    }
}
