//! The choice of virtual host and route against a model that was written for being read, not for being quick.

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
    (r"/?[aAbB/]{0,2}(\?[a/]{0,1})?", prop::collection::vec(header, 0..4), any::<u64>())
}

proptest! {
    #[test]
    fn a28_1_the_virtual_host_is_the_best_one_of_the_model(
        hosts in prop::collection::vec(prop::collection::vec(r"\*|\*?[aAb.]{1,3}|[aAb.]{1,3}\*", 1..4), 0..5),
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
        list in prop::collection::vec(a_route(), 1..6),
        requests in prop::collection::vec(a_request(), 1..8),
    ) {
        let snapshot = routes(list.iter().map(Route::message));
        for (path, headers, random) in &requests {
            let expected = list.iter().position(|route| route.matches(path, headers));
            let query = RouteQuery::new(path).headers(headers).random(*random);
            prop_assert_eq!(place(&snapshot, &query), expected, "{} {:?}", path, headers);
        }
    }
}
