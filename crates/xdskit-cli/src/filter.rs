//! Filters of the shown resources: by type and by patterns of names.

use std::{
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use regex::Regex;

use super::kind::Kind;

/// A pattern of names: `*` is any text, `?` any character, and `\` escapes the next character.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    /// The pattern as written.
    text: Arc<str>,
    /// The pattern as a regular expression.
    regex: Regex,
    /// The name, if the pattern matches a single one.
    literal: Option<String>,
}

/// A glob, of one type or of all: `TYPE=GLOB` or `GLOB`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The type; `None` is any.
    kind: Option<Kind>,
    /// The pattern of names.
    glob: Glob,
}

impl Glob {
    /// Whether the whole name matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// The name, if the pattern matches a single one.
    pub(crate) fn literal(&self) -> Option<&str> {
        self.literal.as_deref()
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty; write a name with * and ? in it, such as 'outbound|80|*'".to_owned());
        }
        // Names may contain line ends, which `.` matches only with this flag.
        let (mut pattern, mut literal) = ("(?s)^".to_owned(), Some(String::new()));
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let c = match c {
                '*' | '?' => {
                    pattern += if c == '*' { ".*" } else { "." };
                    literal = None;
                    continue;
                }
                '\\' => chars.next().ok_or_else(|| format!("{text:?} ends with \\: write \\\\"))?,
                c => c,
            };
            pattern += &regex::escape(c.encode_utf8(&mut [0; 4]));
            literal.iter_mut().for_each(|literal| literal.push(c));
        }
        // The pattern is valid, since all text in it is escaped: only its size can be refused.
        let regex = Regex::new(&(pattern + "$")).map_err(|_| format!("{text:?} is too long"))?;
        Ok(Self { text: text.into(), regex, literal })
    }
}

/// Equality is that of the text.
impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Filter {
    /// Whether a resource passes. A resource of a type without a [`Kind`] can only pass filters for all types.
    pub(crate) fn passes(&self, kind: Option<Kind>, name: &str) -> bool {
        self.kind.is_none_or(|expected| Some(expected) == kind) && self.glob.matches(name)
    }

    /// Whether a resource passes one of several filters, or there are none.
    pub(crate) fn any_passes(filters: &[Self], kind: Option<Kind>, name: &str) -> bool {
        filters.is_empty() || filters.iter().any(|filter| filter.passes(kind, name))
    }
}

impl FromStr for Filter {
    type Err = String;

    /// Text before `=` is a type if it looks like one: names may contain `=`, too.
    fn from_str(text: &str) -> Result<Self, String> {
        let looks_like_type = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_')
        };
        match text.split_once('=').filter(|(kind, _)| looks_like_type(kind)) {
            Some((kind, glob)) => Ok(Self { kind: Some(kind.parse()?), glob: glob.parse()? }),
            None => Ok(Self { kind: None, glob: text.parse()? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        text.parse().expect(text)
    }

    #[test]
    fn a_glob_is_for_the_whole_name() {
        for (text, name, expected) in [
            ("shop", "shop", true),
            ("shop", "shops", false),
            ("sh?p", "shöp", true),
            ("sh?p", "shp", false),
            ("*", "", true),
            ("*", "anything", true),
            ("outbound|80|*", "outbound|80||shop.svc", true),
            ("outbound|80|*", "outbound|8080||shop.svc", false),
            ("*cart*", "a cartography", true),
            ("*cart", "cart-cart", true),
            ("*cart", "cart-carts", false),
            ("a*b*c", "abbbxbc", true),
            ("a*b*c", "abbbxb", false),
            ("**a", "a", true),
            ("?*", "", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a[bc]", "ab", false),
            ("a[bc]", "a[bc]", true),
        ] {
            assert_eq!(glob(text).matches(name), expected, "{name:?} by {text:?}");
        }
    }

    #[test]
    fn a_glob_that_leaves_no_choice_is_a_name() {
        assert_eq!(glob("a\\*b").literal(), Some("a*b"));
        assert_eq!(glob("a*b").literal(), None);
        assert_eq!(glob("a?").literal(), None);
    }

    #[test]
    fn a_filter_may_be_of_a_type() {
        let passes =
            |filter: &str, kind, name: &str| filter.parse::<Filter>().expect(filter).passes(kind, name);
        assert!(passes("cluster=a*", Some(Kind::Cluster), "ab"));
        assert!(!passes("cluster=a*", Some(Kind::Listener), "ab"));
        assert!(!passes("cluster=a*", None, "ab"));
        assert!(passes("a*", None, "ab"));
        assert!(passes("xdstp://x/y?a=*", Some(Kind::Cluster), "xdstp://x/y?a=b"), "the = is in the name");
        assert!(passes("1=*", Some(Kind::Cluster), "1=2"));
        assert!(Filter::any_passes(&[], None, "a"));
    }

    #[test]
    fn what_is_wrong_with_a_filter_is_named() {
        for (text, named) in [
            ("", "is empty"),
            ("cluster=", "is empty"),
            ("clusters=*", "did you mean cluster?"),
            ("a\\", "write \\\\"),
        ] {
            let error = text.parse::<Filter>().expect_err(text);
            assert!(error.contains(named), "{named:?} is not in {error:?} of {text:?}");
        }
    }
}
