//! Routes that can never match, since an earlier one matches all that they match. What is not known is never claimed.

use serde_json::Value;

/// The condition of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Match {
    /// The condition of the path.
    pub(crate) path: Path,
    /// Whether the case of ASCII letters in the path matters.
    pub(crate) case_sensitive: bool,
    /// The conditions of headers, all of which must hold.
    pub(crate) headers: Vec<Header>,
    /// Whether there are other conditions, such as a fraction of the requests.
    pub(crate) is_limited: bool,
}

/// The condition of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Path {
    /// The beginning of the path.
    Prefix(String),
    /// The whole path.
    Exact(String),
    /// The first segments of the path.
    Separated(String),
    /// A regular expression for the whole path.
    Regex(String),
    /// A condition that is not understood.
    Unknown,
}

/// The condition of a header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    /// The name in lower case.
    pub(crate) name: String,
    /// The condition of the value.
    pub(crate) value: Condition,
    /// The other fields, which equal conditions have in common: inversion, and the value of a missing header.
    pub(crate) modifiers: Vec<String>,
}

/// The condition of a header's value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Condition {
    /// The header is there.
    Present,
    /// The whole value.
    Exact(String),
    /// The beginning of the value.
    Prefix(String),
    /// The end of the value.
    Suffix(String),
    /// A part of the value.
    Contains(String),
    /// Another condition, by its JSON. It is understood as equal to itself alone.
    Other(String),
}

impl Match {
    /// The condition in the canonical JSON of a `RouteMatch`.
    pub(crate) fn of(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let path = text("prefix").map(Path::Prefix).or_else(|| text("path").map(Path::Exact));
        let path = path.or_else(|| text("path_separated_prefix").map(Path::Separated));
        let path = path
            .or_else(|| value["safe_regex"]["regex"].as_str().map(|pattern| Path::Regex(pattern.to_owned())));
        let headers = value["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has_other = value.as_object().is_some_and(|fields| {
            fields.keys().any(|name| !UNDERSTOOD.contains(&name.as_str()) && !PATHS.contains(&name.as_str()))
        });
        Self {
            path: path.unwrap_or(Path::Unknown),
            case_sensitive: value["case_sensitive"].as_bool().unwrap_or(true),
            headers: headers.iter().map(Header::of).collect(),
            is_limited: has_other,
        }
    }

    /// Whether it matches each request that another condition matches. False if that is not certain.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        !self.is_limited
            && self.covers_path(other)
            && self.headers.iter().all(|header| other.headers.iter().any(|given| header.follows_from(given)))
    }

    /// Whether each path that another condition matches matches.
    fn covers_path(&self, other: &Self) -> bool {
        // Paths of requests begin with a slash.
        if matches!(&self.path, Path::Prefix(prefix) if prefix.is_empty() || prefix == "/") {
            return true;
        }
        // A path of any case is matched by a condition that does not care alone.
        if self.case_sensitive && !other.case_sensitive {
            return false;
        }
        match (&self.path, &other.path) {
            (Path::Prefix(prefix), Path::Prefix(other) | Path::Exact(other) | Path::Separated(other)) => {
                self.after(prefix, other).is_some()
            }
            (Path::Exact(exact), Path::Exact(other)) => {
                self.after(exact, other).is_some_and(<[u8]>::is_empty)
            }
            (Path::Separated(prefix), Path::Exact(other) | Path::Separated(other)) => {
                self.after(prefix, other).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }
            (Path::Separated(prefix), Path::Prefix(other)) => {
                self.after(prefix, other).is_some_and(|rest| rest.first() == Some(&b'/'))
            }
            // The case of a regular expression is its own.
            (Path::Regex(regex), Path::Regex(other)) => regex == other,
            (Path::Prefix(_) | Path::Exact(_) | Path::Separated(_) | Path::Regex(_) | Path::Unknown, _) => {
                false
            }
        }
    }

    /// The rest of a text that begins with a prefix.
    fn after<'a>(&self, prefix: &str, text: &'a str) -> Option<&'a [u8]> {
        let (begin, rest) = text.as_bytes().split_at_checked(prefix.len())?;
        let is_same = match self.case_sensitive {
            true => begin == prefix.as_bytes(),
            false => begin.eq_ignore_ascii_case(prefix.as_bytes()),
        };
        is_same.then_some(rest)
    }
}

impl Header {
    /// The condition in the canonical JSON of a `HeaderMatcher`.
    fn of(value: &Value) -> Self {
        let field = |name: &str| value[name].as_str().map(str::to_owned);
        let string = &value["string_match"];
        let of_string = |name: &str| {
            let text = string[name].as_str().map(str::to_owned);
            text.filter(|_| string["ignore_case"].as_bool() != Some(true))
        };
        let either = |one: &str, other: &str| field(one).or_else(|| of_string(other));
        let condition = if value["present_match"].as_bool() == Some(true) {
            Some(Condition::Present)
        } else {
            let condition = either("exact_match", "exact").map(Condition::Exact);
            let condition = condition.or_else(|| either("prefix_match", "prefix").map(Condition::Prefix));
            let condition = condition.or_else(|| either("suffix_match", "suffix").map(Condition::Suffix));
            condition.or_else(|| either("contains_match", "contains").map(Condition::Contains))
        };
        let modifiers = ["invert_match", "treat_missing_header_as_empty"];
        let modifiers = modifiers.into_iter().filter(|name| value[*name].as_bool() == Some(true));
        Self {
            name: value["name"].as_str().unwrap_or_default().to_ascii_lowercase(),
            value: condition.unwrap_or_else(|| Condition::Other(value.to_string())),
            modifiers: modifiers.map(str::to_owned).collect(),
        }
    }

    /// Whether it holds wherever another condition holds.
    fn follows_from(&self, given: &Self) -> bool {
        if self == given {
            return true;
        }
        if self.name != given.name || !self.modifiers.is_empty() || !given.modifiers.is_empty() {
            return false;
        }
        use Condition::{Contains, Exact, Other, Prefix, Present, Suffix};
        match (&self.value, &given.value) {
            (Present, Exact(_) | Prefix(_) | Suffix(_) | Contains(_)) => true,
            (Prefix(prefix), Exact(given) | Prefix(given)) => given.starts_with(prefix),
            (Suffix(suffix), Exact(given) | Suffix(given)) => given.ends_with(suffix),
            (Contains(part), Exact(given) | Prefix(given) | Suffix(given) | Contains(given)) => {
                given.contains(part)
            }
            (Present | Exact(_) | Prefix(_) | Suffix(_) | Contains(_) | Other(_), _) => false,
        }
    }
}

/// The routes that never match, each with the earlier route that matches all of its requests. A route that the client leaves out is
/// `None`, and covers nothing.
pub(crate) fn unreachable(routes: &[Option<Match>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        let Some(route) = route else { continue };
        let earlier = routes[..index].iter().take(MAX_COMPARED);
        if let Some(by) =
            earlier.into_iter().position(|one| one.as_ref().is_some_and(|one| one.covers(route)))
        {
            found.push((index, by));
        }
    }
    found
}

/// The fields of a condition that are understood, beside those of paths.
const UNDERSTOOD: [&str; 2] = ["case_sensitive", "headers"];
/// The fields of conditions of paths. One that is not understood is [`Path::Unknown`], which covers nothing and is only covered by all.
const PATHS: [&str; 6] =
    ["prefix", "path", "safe_regex", "path_separated_prefix", "connect_matcher", "path_match_policy"];
/// The most earlier routes that a route is compared with, so that a list of 100,000 routes takes no hours.
const MAX_COMPARED: usize = 2_000;

#[cfg(test)]
mod tests;
