//! The spelling of `xdstp:` names in requests (rule X2): as the application, the configuration or the resource has written
//! them, since many servers compare the text of names and not their meaning. The context parameters alone are sorted.
//!
//! All texts here are those of names that were parsed before, without directives.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    SCHEME,
    encoding::{self, encode_illegal_into},
    params::{ContextParams, encoded_pair},
};

/// The spelling of a name that was written as `text`, with or without directives.
///
/// Bytes that no URI may contain are escaped, since they could not be sent otherwise; escapes stay as they are, with the case
/// of their digits.
pub(super) fn of(text: &str, params: &ContextParams) -> String {
    // An unescaped `#` begins the directives: the parts of a name escape it.
    let text = text.split_once('#').map_or(text, |(name, _)| name);
    let mut legal = String::with_capacity(text.len());
    encode_illegal_into(&mut legal, text);
    with_params(&legal, params)
}

/// The spelling with other context parameters. Those that it has already stay as they are written.
///
/// Used when the client adds parameters or an application sets attributes: what was written stays as it was.
pub(super) fn with_params(spelling: &str, params: &ContextParams) -> String {
    let (path, query) = spelling.split_once('?').unwrap_or((spelling, ""));
    let written: BTreeMap<_, _> = query.split('&').filter_map(WrittenParam::parse).collect();
    let mut pairs: Vec<_> = params
        .iter()
        .map(|(key, value)| {
            let canonical = encoded_pair(key, value);
            // A parameter that was given another value is not the one that was written.
            let known = written.get(key).filter(|param| param.value == value);
            let spelled = known.map_or_else(|| canonical.clone(), |param| param.text.to_owned());
            (canonical, spelled)
        })
        .collect();
    // By the canonical text, so that the order does not depend on the spelling.
    pairs.sort_unstable();
    let mut out = path.to_owned();
    for (index, (_, pair)) in pairs.iter().enumerate() {
        out.push(if index == 0 { '?' } else { '&' });
        out.push_str(pair);
    }
    out
}

/// The spelling of a part of a resource: one segment longer, and of another type.
///
/// `None` if the text is not that of an `xdstp:` name.
pub(super) fn part(spelling: &str, resource_type: &str, segment: &str) -> Option<String> {
    let (path, query) = spelling.split_at(spelling.find('?').unwrap_or(spelling.len()));
    let mut parts = path.strip_prefix(SCHEME)?.splitn(3, '/');
    let authority = parts.next()?;
    let id = parts.nth(1).filter(|id| !id.is_empty());
    let mut out = format!("{SCHEME}{authority}/{resource_type}/");
    if let Some(id) = id {
        out.push_str(id);
        out.push('/');
    }
    encoding::encode_into(&mut out, segment, encoding::PATH);
    out.push_str(query);
    Some(out)
}

/// A context parameter as it is written.
struct WrittenParam<'a> {
    /// The decoded value.
    value: Cow<'a, str>,
    /// The whole parameter as it is written.
    text: &'a str,
}

impl<'a> WrittenParam<'a> {
    /// Its key, and the rest. `None` for an empty pair. Those that cannot be decoded do not occur: the name was parsed before.
    fn parse(text: &'a str) -> Option<(Cow<'a, str>, Self)> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (encoding::decode(key).ok()?, encoding::decode(value).ok()?);
        (!text.is_empty()).then_some((key, Self { value, text }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ResourceName;

    fn spelling(text: &str) -> String {
        ResourceName::parse_received(text).unwrap().spelling().to_owned()
    }

    #[test]
    fn x2_a_name_is_sent_as_it_was_written_with_sorted_parameters() {
        for text in [
            "opaque%3A",
            "xdstp://a/T/shop:8000",
            "xdstp://a/T/shop%3A8000",
            "xdstp://a/T/shop%3a8000",
            "xdstp://a/T/%5B::%5D:80",
            "xdstp://a/T/[::]:80",
            "xdstp://a/T/s%68op/b%2Fc",
            "xdstp://%61:1/T/x",
            "xdstp://a/T/?x",
            "xdstp://a/T/x?k=%3A&l=:",
        ] {
            assert_eq!(spelling(text), text);
        }
        for (text, sent) in [
            ("xdstp://a/T/x:1?zz=%61&aa=%3A", "xdstp://a/T/x:1?aa=%3A&zz=%61"),
            ("xdstp://a/T/x%3A1?b=1&&%61=2#entry=e", "xdstp://a/T/x%3A1?%61=2&b=1"),
            // What no URI may contain is sent escaped.
            ("xdstp://a/T/foo x:1%20?p=\"é\"", "xdstp://a/T/foo%20x:1%20?p=%22%C3%A9%22"),
        ] {
            assert_eq!(spelling(text), sent);
        }
    }

    #[test]
    fn x2_names_are_compared_decoded_whatever_their_spelling() {
        let (plain, escaped) = ("xdstp://a/T/shop:8000?x=:", "xdstp://a/T/shop%3a8000?x=%3A");
        let parse = |text| ResourceName::parse(text).unwrap();
        assert_eq!(parse(plain), parse(escaped));
        assert_eq!(parse(plain).canonical(), parse(escaped).canonical());
        assert_ne!(parse(plain).spelling(), parse(escaped).spelling());
        assert_eq!(parse(escaped).as_str(), plain, "where nobody has written it, `:` is not escaped");
    }

    #[test]
    fn x2_derived_names_keep_the_spelling_of_what_was_written() {
        let name = ResourceName::parse("xdstp://%61/T/b%3Ac?l=%31&k=%32").unwrap();
        let with = name.with_resource_attribute("vip", "10.0.0.1:80");
        assert_eq!(with.spelling(), "xdstp://%61/T/b%3Ac?k=%32&l=%31&xds.resource.vip=10.0.0.1:80");
        let replaced = name.with_context_params([("k", "2"), ("l", "other")].into_iter().collect());
        assert_eq!(replaced.spelling(), "xdstp://%61/T/b%3Ac?k=%32&l=other");
        assert_eq!(name.part("U", "h:80").spelling(), "xdstp://%61/U/b%3Ac/h:80?k=%32&l=%31");
        let top = ResourceName::parse("xdstp://%61/T").unwrap();
        assert_eq!(top.part("U", "h:80").spelling(), "xdstp://%61/U/h:80");
        assert_eq!(ResourceName::parse("x:1").unwrap().part("U", "h:80").spelling(), "x:1/h:80");
        let directed = ResourceName::parse("xdstp://a/T/b%3A#alt=xdstp://b/T/c%253A").unwrap();
        assert_eq!(directed.without_alt().spelling(), "xdstp://a/T/b%3A");
        assert_eq!(directed.without_directives().spelling(), "xdstp://a/T/b%3A");
        let alternative = directed.directives().and_then(|directives| directives.alt()).unwrap();
        assert_eq!(alternative.spelling(), "xdstp://b/T/c%3A");
    }
}
