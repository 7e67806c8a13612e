//! The choice of virtual host and route against a model that was written for being read, not for being quick.

use proptest::prelude::*;

use super::*;
use crate::{
    pb::envoy::config::route::v3::RouteConfiguration as Message, resolve::fixture::parse,
    resource::RouteConfiguration,
};

/// The kinds of domains, the worst first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Everything,
    PrefixOf(usize),
    SuffixOf(usize),
    Exactly,
}

fn rank(domain: &str, host: &str) -> Option<Rank> {
    let (domain, host) = (domain.to_lowercase(), host.to_lowercase());
    if domain == "*" {
        return Some(Rank::Everything);
    }
    if let Some(suffix) = domain.strip_prefix('*') {
        return (host.ends_with(suffix) && host != suffix).then_some(Rank::SuffixOf(suffix.len()));
    }
    if let Some(prefix) = domain.strip_suffix('*') {
        return (host.starts_with(prefix) && host != prefix).then_some(Rank::PrefixOf(prefix.len()));
    }
    (domain == host).then_some(Rank::Exactly)
}

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

/// A pattern of characters, `.` for any, each of which is there once or, if said so, any number of times.
#[derive(Debug, Clone)]
struct Pattern(Vec<(char, bool)>);

impl Pattern {
    fn text(&self) -> String {
        self.0.iter().map(|(c, many)| format!("{c}{}", if *many { "*" } else { "" })).collect()
    }

    fn matches(&self, text: &str) -> bool {
        let Some(((c, many), rest)) = self.0.split_first() else { return text.is_empty() };
        let rest = Self(rest.to_vec());
        let first_fits = text.chars().next().is_some_and(|first| first == *c || *c == '.');
        match (many, first_fits) {
            (true, true) => rest.matches(text) || self.matches(&text[1..]),
            (true, false) => rest.matches(text),
            (false, true) => rest.matches(&text[1..]),
            (false, false) => false,
        }
    }
}

#[derive(Debug, Clone)]
enum Text {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    Regex(Pattern),
}

impl Text {
    fn matches(&self, text: &str, ignore_case: bool) -> bool {
        let fold = |text: &str| if ignore_case { text.to_lowercase() } else { text.to_owned() };
        let folded = fold(text);
        match self {
            Self::Exact(exact) => folded == fold(exact),
            Self::Prefix(prefix) => folded.find(&fold(prefix)) == Some(0),
            Self::Suffix(suffix) => folded.ends_with(&fold(suffix)),
            Self::Contains(part) => folded.contains(&fold(part)),
            Self::Regex(pattern) => pattern.matches(text),
        }
    }

    fn message(&self, ignore_case: bool) -> StringMatcher {
        let pattern = match self.clone() {
            Self::Exact(text) => MatchPattern::Exact(text),
            Self::Prefix(text) => MatchPattern::Prefix(text),
            Self::Suffix(text) => MatchPattern::Suffix(text),
            Self::Contains(text) => MatchPattern::Contains(text),
            Self::Regex(pattern) => MatchPattern::SafeRegex(RegexMatcher { regex: pattern.text() }),
        };
        StringMatcher { match_pattern: Some(pattern), ignore_case }
    }
}

#[derive(Debug, Clone)]
enum Condition {
    Text(Text, bool),
    Range(i64, i64),
    Present(bool),
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
        let value = self.value(headers);
        match (&self.condition, value) {
            (Condition::Present(present), value) => (*present == value.is_some()) != self.invert,
            (Condition::Text(..) | Condition::Range(..), None) => false,
            (Condition::Text(text, ignore_case), Some(value)) => {
                text.matches(&value, *ignore_case) != self.invert
            }
            (Condition::Range(start, end), Some(value)) => {
                (*start..*end).any(|number| number.to_string() == value) != self.invert
            }
        }
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
        let specifier = match &self.condition {
            Condition::Text(text, ignore_case) => {
                HeaderMatchSpecifier::StringMatch(text.message(*ignore_case))
            }
            Condition::Range(start, end) => RangeMatch(Int64Range { start: *start, end: *end }),
            Condition::Present(present) => PresentMatch(*present),
        };
        route::HeaderMatcher {
            invert_match: self.invert,
            treat_missing_header_as_empty: self.missing_is_empty,
            ..header(&self.name, specifier)
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

fn pattern() -> impl Strategy<Value = Pattern> {
    let part = (prop::sample::select(vec!['a', 'B', '1', '/', '.']), any::<bool>());
    prop::collection::vec(part, 0..4).prop_map(Pattern)
}

fn a_header_name() -> impl Strategy<Value = String> {
    let names = ["x", "X", "y", "y-bin", "Y-BIN", ":x", "content-type", "Content-Type"];
    prop::sample::select(names.map(str::to_owned).to_vec())
}

fn a_condition() -> impl Strategy<Value = Condition> {
    let text = prop_oneof![
        "[aB1,]{0,2}".prop_map(Text::Exact),
        "[aB1,]{1,2}".prop_map(Text::Prefix),
        "[aB1,]{1,2}".prop_map(Text::Suffix),
        "[aB1,]{1,2}".prop_map(Text::Contains),
        pattern().prop_map(Text::Regex),
    ];
    let text = (text, any::<bool>());
    prop_oneof![
        4 => text.prop_map(|(text, ignore_case)| {
            // A regex says itself what it ignores.
            let is_regex = matches!(text, Text::Regex(_));
            Condition::Text(text, ignore_case && !is_regex)
        }),
        1 => (-2..3_i64, 0..4_i64).prop_map(|(start, length)| Condition::Range(start, start + length)),
        1 => any::<bool>().prop_map(Condition::Present),
    ]
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
    let path = prop_oneof![
        "/?[aB/]{0,2}".prop_map(Text::Exact),
        "/?[aB/]{0,1}".prop_map(Text::Prefix),
        pattern().prop_map(Text::Regex),
    ];
    let headers = prop::collection::vec(a_header(), 0..3);
    let fraction = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (path, any::<bool>(), headers, fraction).prop_map(|(path, ignore_case, headers, fraction)| Route {
        ignore_case: ignore_case && !matches!(path, Text::Regex(_)),
        path,
        headers,
        fraction,
    })
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
