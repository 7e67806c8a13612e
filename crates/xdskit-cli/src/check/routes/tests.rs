use serde_json::json;

use super::*;

fn covers(one: &Value, other: &Value) -> bool {
    Match::of(one).covers(&Match::of(other))
}

#[test]
fn a_path_covers_those_that_it_begins() {
    for (one, other, expected) in [
        (json!({"prefix": "/"}), json!({"safe_regex": {"regex": "/a.*"}}), true),
        (json!({"prefix": ""}), json!({"path": "/a"}), true),
        (json!({"prefix": "/a"}), json!({"prefix": "/a/b"}), true),
        (json!({"prefix": "/a"}), json!({"prefix": "/"}), false),
        (json!({"prefix": "/a"}), json!({"safe_regex": {"regex": "/a.*"}}), false),
        (json!({"prefix": "/a", "case_sensitive": false}), json!({"path": "/A/b"}), true),
        (json!({"prefix": "/a"}), json!({"path": "/a", "case_sensitive": false}), false),
        (json!({"prefix": "/"}), json!({"path": "/a", "case_sensitive": false}), true),
        (json!({"path": "/a"}), json!({"path": "/a"}), true),
        (json!({"path": "/a"}), json!({"prefix": "/a"}), false),
        (json!({"path_separated_prefix": "/a"}), json!({"path": "/ab"}), false),
        (json!({"path_separated_prefix": "/a"}), json!({"path": "/a/b"}), true),
        (json!({"path_separated_prefix": "/a"}), json!({"prefix": "/a"}), false),
        (json!({"path_separated_prefix": "/a"}), json!({"prefix": "/a/"}), true),
        (json!({"safe_regex": {"regex": "/a"}}), json!({"safe_regex": {"regex": "/a"}}), true),
        (json!({"connect_matcher": {}}), json!({"connect_matcher": {}}), false),
    ] {
        assert_eq!(covers(&one, &other), expected, "{one} covers {other}");
    }
}

#[test]
fn a_route_with_other_conditions_covers_nothing() {
    let all = json!({"prefix": "/"});
    for limited in [
        json!({"prefix": "/", "runtime_fraction": {"default_value": {"numerator": 100}}}),
        json!({"prefix": "/", "query_parameters": [{"name": "q"}]}),
        json!({"prefix": "/", "headers": [{"name": "x", "present_match": true}]}),
        json!({"prefix": "/", "grpc": {}}),
    ] {
        assert!(!covers(&limited, &all), "{limited}");
        assert!(covers(&all, &limited), "{limited}");
    }
}

#[test]
fn conditions_of_headers_follow_from_stricter_ones() {
    let with = |header: Value| json!({"prefix": "/", "headers": [header]});
    for (one, other, expected) in [
        (json!({"name": "X", "present_match": true}), json!({"name": "x", "exact_match": "a"}), true),
        (json!({"name": "x", "prefix_match": "a"}), json!({"name": "x", "exact_match": "ab"}), true),
        (
            json!({"name": "x", "string_match": {"suffix": "b"}}),
            json!({"name": "x", "exact_match": "ab"}),
            true,
        ),
        (json!({"name": "x", "contains_match": "b"}), json!({"name": "x", "prefix_match": "abc"}), true),
        (json!({"name": "x", "prefix_match": "b"}), json!({"name": "x", "exact_match": "ab"}), false),
        (json!({"name": "y", "prefix_match": "a"}), json!({"name": "x", "exact_match": "ab"}), false),
        (
            json!({"name": "x", "prefix_match": "a", "invert_match": true}),
            json!({"name": "x", "exact_match": "ab"}),
            false,
        ),
        (
            json!({"name": "x", "present_match": true}),
            json!({"name": "x", "exact_match": "", "treat_missing_header_as_empty": true}),
            false,
        ),
        (
            json!({"name": "x", "string_match": {"prefix": "a", "ignore_case": true}}),
            json!({"name": "x", "exact_match": "ab"}),
            false,
        ),
        (
            json!({"name": "x", "range_match": {"start": "1"}}),
            json!({"name": "x", "range_match": {"start": "1"}}),
            true,
        ),
        (json!({"name": "x", "present_match": false}), json!({"name": "x", "exact_match": "ab"}), false),
    ] {
        assert_eq!(covers(&with(one.clone()), &with(other.clone())), expected, "{one} covers {other}");
    }
}

/// A request: its path, and the value of the header `x`.
struct Request {
    path: String,
    header: Option<String>,
}

/// What the words mean, without anything that the check uses.
fn matches(route: &Value, request: &Request) -> bool {
    let is_sensitive = route["case_sensitive"] != json!(false);
    let fold = |text: &str| if is_sensitive { text.to_owned() } else { text.to_lowercase() };
    let path = fold(&request.path);
    let text = |name: &str| route[name].as_str().map(fold);
    let by_path = text("prefix").map(|prefix| path.starts_with(&prefix));
    let by_path = by_path.or(text("path").map(|exact| path == exact));
    let by_path =
        by_path.or(text("path_separated_prefix").map(|one| path == one || path.starts_with(&(one + "/"))));
    let by_path = by_path.unwrap_or_else(|| {
        let mut rest = request.path[1..].chars();
        match route["safe_regex"]["regex"].as_str().expect("one of the kinds") {
            "/a.*" => rest.next() == Some('a'),
            "/[ab]+" => !request.path[1..].is_empty() && rest.all(|c| c == 'a' || c == 'b'),
            "/" => rest.next().is_none(),
            other => panic!("{other} is none of the patterns"),
        }
    });
    by_path
        && route["headers"].as_array().expect("a list").iter().all(|header| matches_header(header, request))
}

fn matches_header(header: &Value, request: &Request) -> bool {
    let missing_as_empty = header["treat_missing_header_as_empty"] == json!(true);
    let value = request.header.clone().or(missing_as_empty.then(String::new));
    let text = |name: &str| header[name].as_str().map(str::to_owned);
    let is_inverted = header["invert_match"] == json!(true);
    if let Some(present) = header["present_match"].as_bool() {
        return (value.is_some() == present) != is_inverted;
    }
    let Some(value) = value else { return false };
    let held = text("exact_match").map(|exact| value == exact);
    let held = held.or(text("prefix_match").map(|begin| value.starts_with(&begin)));
    let held = held.or(text("suffix_match").map(|end| value.ends_with(&end)));
    let held = held.or(text("contains_match").map(|part| value.contains(&part)));
    held.expect("one of the kinds") != is_inverted
}

/// A generator of numbers, so that a failure is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).expect("it is small")
    }

    /// A short text of few letters, so that texts often begin with each other.
    fn text(&mut self, letters: &[char], longest: usize) -> String {
        (0..self.below(longest + 1)).map(|_| letters[self.below(letters.len())]).collect()
    }

    fn path(&mut self) -> String {
        format!("/{}", self.text(&['a', 'A', 'b', '/'], 4))
    }

    fn route(&mut self) -> Value {
        let mut route = match self.below(5) {
            0 | 1 => json!({"prefix": self.path()}),
            2 => json!({"path": self.path()}),
            3 => json!({"path_separated_prefix": self.path().trim_end_matches('/')}),
            _ => json!({"safe_regex": {"regex": (["/a.*", "/[ab]+", "/"][self.below(3)])}}),
        };
        route["case_sensitive"] = json!(self.below(3) > 0);
        let header = |random: &mut Self| {
            let kind = ["exact_match", "prefix_match", "suffix_match", "contains_match"][random.below(4)];
            let mut header = match random.below(4) {
                0 => json!({"name": "x", "present_match": random.below(2) > 0}),
                _ => json!({"name": "x", kind: random.text(&['a', 'b'], 3)}),
            };
            header["invert_match"] = json!(random.below(5) == 0);
            header["treat_missing_header_as_empty"] = json!(random.below(5) == 0);
            header
        };
        route["headers"] = (0..self.below(3)).map(|_| header(self)).collect();
        route
    }

    fn request(&mut self) -> Request {
        let header = (self.below(4) > 0).then(|| self.text(&['a', 'b'], 4));
        Request { path: self.path(), header }
    }
}

#[test]
fn a_route_that_is_reported_as_unreachable_never_wins() {
    let mut random = Random(17);
    let mut reported = 0;
    for _ in 0..2_000 {
        let routes: Vec<_> = (0..2 + random.below(5)).map(|_| random.route()).collect();
        let matchers: Vec<_> = routes.iter().map(|route| Some(Match::of(route))).collect();
        let found = unreachable(&matchers);
        reported += found.len();
        for _ in 0..60 {
            let request = random.request();
            let winner = routes.iter().position(|route| matches(route, &request));
            let is_wrong = |(index, by): &&(usize, usize)| {
                Some(*index) == winner
                    || (matches(&routes[*index], &request) && !matches(&routes[*by], &request))
            };
            if let Some((index, by)) = found.iter().find(is_wrong) {
                let Request { path, header } = request;
                panic!("{} is not covered by {}: {path} {header:?}", routes[*index], routes[*by]);
            }
        }
    }
    assert!(reported > 500, "routes that are covered occur: {reported}");
}
