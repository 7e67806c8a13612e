use serde_json::json;

use super::*;
use crate::pb::envoy::r#type::v3::Int64Range;

fn text(pattern: MatchPattern) -> Result<StringMatcher, Invalid> {
    StringMatcher::parse(matcher::StringMatcher { match_pattern: Some(pattern), ignore_case: false })
}

fn ignoring_case(pattern: MatchPattern) -> StringMatcher {
    StringMatcher::parse(matcher::StringMatcher { match_pattern: Some(pattern), ignore_case: true }).unwrap()
}

fn regex(pattern: &str) -> matcher::RegexMatcher {
    matcher::RegexMatcher { regex: pattern.into() }
}

fn header(specifier: HeaderMatchSpecifier) -> Result<HeaderMatcher, Invalid> {
    HeaderMatcher::parse(route::HeaderMatcher {
        name: "x-user".into(),
        header_match_specifier: Some(specifier),
        ..Default::default()
    })
}

#[test]
fn m1_a_pattern_is_required() {
    assert!(StringMatcher::parse(matcher::StringMatcher::default()).is_err());
    assert!(text(MatchPattern::Exact("a".into())).is_ok());
}

#[test]
fn m2_m3_m4_parts_must_not_be_empty_and_m5_exact_may() {
    for (pattern, path) in [
        (MatchPattern::Prefix(String::new()), "prefix"),
        (MatchPattern::Suffix(String::new()), "suffix"),
        (MatchPattern::Contains(String::new()), "contains"),
    ] {
        assert_eq!(text(pattern).unwrap_err().path(), path);
    }
    let empty = text(MatchPattern::Exact(String::new())).unwrap();
    assert!(empty.matches(""));
    assert!(!empty.matches("a"));
}

#[test]
fn patterns_match_what_they_say() {
    for (pattern, yes, no) in [
        (MatchPattern::Exact("Ab".into()), &["Ab"][..], &["ab", "Abc", "", "A"][..]),
        (MatchPattern::Prefix("Ab".into()), &["Ab", "Abc"], &["abc", "A", "", "cAb"]),
        (MatchPattern::Suffix("Ab".into()), &["Ab", "cAb"], &["cab", "b", "", "Abc"]),
        (MatchPattern::Contains("Ab".into()), &["Ab", "cAbc"], &["cabc", "A", ""]),
        (MatchPattern::SafeRegex(regex("A|Ab")), &["A", "Ab"], &["Abc", "cA", "", "Ab\n"]),
    ] {
        let matcher = text(pattern).unwrap();
        for text in yes {
            assert!(matcher.matches(text), "{matcher:?} on {text:?}");
        }
        for text in no {
            assert!(!matcher.matches(text), "{matcher:?} on {text:?}");
        }
    }
}

#[test]
fn case_can_be_ignored() {
    for pattern in [
        MatchPattern::Exact("aBc".into()),
        MatchPattern::Prefix("aB".into()),
        MatchPattern::Suffix("Bc".into()),
        MatchPattern::Contains("B".into()),
    ] {
        assert!(ignoring_case(pattern.clone()).matches("AbC"));
        assert!(!ignoring_case(pattern).matches("xyz"));
    }
    // A part of a longer character is no match, and no panic.
    assert!(!ignoring_case(MatchPattern::Prefix("a".into())).matches("é"));
}

#[test]
fn m6_regexes_are_anchored_and_must_compile() {
    let matcher = Regex::new("a+|b").unwrap();
    for (text, expected) in [("aaa", true), ("b", true), ("aab", false), ("xa", false), ("a\n", false)] {
        assert_eq!(matcher.matches(text), expected, "{text:?}");
    }
    for bad in ["(", "a)|(b", "*", r"(a)\1", "(?=a)"] {
        let error = text(MatchPattern::SafeRegex(regex(bad))).unwrap_err();
        assert_eq!(error.path(), "safe_regex.regex");
        assert!(!error.reason().contains('\n'), "{error}");
    }
    assert!(Regex::new("(?m)a$").unwrap().matches("a"));
    assert!(!Regex::new("(?m)a$").unwrap().matches("a\nb"));
}

#[test]
fn m6_regexes_over_the_size_limit_are_rejected() {
    assert!(Regex::new("[a-z0-9-]{1,253}").is_ok());
    let error = Regex::new(r"((a{1000}){1000}){1000}").unwrap_err();
    assert!(error.reason().contains("size limit"), "{error}");
}

#[test]
fn m6_classes_are_ascii_unless_the_pattern_needs_unicode() {
    assert!(!Regex::new(r"\w").unwrap().matches("é"));
    assert!(Regex::new(r"\p{L}").unwrap().matches("é"));
    assert!(Regex::new("[é]").unwrap().matches("é"));
    assert!(Regex::new(".*").unwrap().matches("é"));
}

#[test]
fn m7_a_regex_drops_ignore_case() {
    let matcher = ignoring_case(MatchPattern::SafeRegex(regex("a")));
    assert!(!matcher.ignore_case);
    assert!(matcher.matches("a"));
    assert!(!matcher.matches("A"));
}

#[test]
fn m8_specifiers_are_required_and_checked() {
    let unset = route::HeaderMatcher { name: "x-user".into(), ..Default::default() };
    assert!(HeaderMatcher::parse(unset).is_err());
    for (specifier, path) in [
        (HeaderMatchSpecifier::PrefixMatch(String::new()), "prefix_match"),
        (HeaderMatchSpecifier::SuffixMatch(String::new()), "suffix_match"),
        (HeaderMatchSpecifier::ContainsMatch(String::new()), "contains_match"),
        (HeaderMatchSpecifier::SafeRegexMatch(regex("(")), "safe_regex_match.regex"),
        (HeaderMatchSpecifier::StringMatch(matcher::StringMatcher::default()), "string_match"),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 2, end: 1 }), "range_match"),
    ] {
        assert_eq!(header(specifier).unwrap_err().path(), path);
    }
    for specifier in [
        HeaderMatchSpecifier::ExactMatch(String::new()),
        HeaderMatchSpecifier::RangeMatch(Int64Range { start: 1, end: 1 }),
        HeaderMatchSpecifier::PresentMatch(false),
    ] {
        assert!(header(specifier).is_ok());
    }
}

#[test]
fn m8_headers_match() {
    let some = Some;
    for (specifier, yes, no) in [
        (HeaderMatchSpecifier::ExactMatch("a".into()), some("a"), some("A")),
        (HeaderMatchSpecifier::PrefixMatch("a".into()), some("ab"), some("ba")),
        (HeaderMatchSpecifier::SuffixMatch("a".into()), some("ba"), some("ab")),
        (HeaderMatchSpecifier::ContainsMatch("a".into()), some("bab"), some("b")),
        (HeaderMatchSpecifier::SafeRegexMatch(regex("a+")), some("aa"), some("aab")),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: -1, end: 2 }), some("-1"), some("2")),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 0, end: 9 }), some("0"), some("1.5")),
        (HeaderMatchSpecifier::PresentMatch(true), some(""), None),
        (HeaderMatchSpecifier::PresentMatch(false), None, some("")),
    ] {
        let matcher = header(specifier).unwrap();
        let inverted = HeaderMatcher { invert: true, ..matcher.clone() };
        assert!(matcher.matches(yes) && !matcher.matches(no), "{matcher:?}");
        assert!(!inverted.matches(yes) && inverted.matches(no), "inverted {matcher:?}");
    }
}

#[test]
fn m8_a_missing_header_has_no_value_to_match_inverted_or_not() {
    let matcher = header(HeaderMatchSpecifier::ExactMatch(String::new())).unwrap();
    assert!(!matcher.matches(None));
    assert!(!HeaderMatcher { invert: true, ..matcher.clone() }.matches(None));
    assert!(HeaderMatcher { missing_is_empty: true, ..matcher }.matches(None));
}

#[test]
fn matchers_are_written_as_the_messages_name_them() {
    let mut matcher = header(HeaderMatchSpecifier::SafeRegexMatch(regex("a+"))).unwrap();
    assert_eq!(
        serde_json::to_value(&matcher).unwrap(),
        json!({"name": "x-user", "string_match": {"safe_regex": "a+"}})
    );
    matcher = header(HeaderMatchSpecifier::RangeMatch(Int64Range { start: 1, end: 5 })).unwrap();
    matcher.invert = true;
    assert_eq!(
        serde_json::to_value(&matcher).unwrap(),
        json!({"name": "x-user", "range_match": {"start": 1, "end": 5}, "invert": true})
    );
    assert_eq!(
        serde_json::to_value(ignoring_case(MatchPattern::Prefix("/A".into()))).unwrap(),
        json!({"prefix": "/A", "ignore_case": true})
    );
}
