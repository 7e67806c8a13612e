use serde_json::json;

use super::*;
use crate::pb::envoy::{
    config::{
        core::v3::CidrRange,
        route::v3::{self as route, header_matcher::HeaderMatchSpecifier, route_match::PathSpecifier},
    },
    r#type::{
        matcher::v3::{self as pb, string_matcher::MatchPattern},
        v3::Int64Range,
    },
};

mod properties;
mod rules;

fn text(pattern: MatchPattern) -> StringMatcher {
    StringMatcher::parse(pb::StringMatcher { match_pattern: Some(pattern), ignore_case: false }).unwrap()
}

fn ignoring_case(pattern: MatchPattern) -> StringMatcher {
    StringMatcher::parse(pb::StringMatcher { match_pattern: Some(pattern), ignore_case: true }).unwrap()
}

fn regex(pattern: &str) -> pb::RegexMatcher {
    pb::RegexMatcher { regex: pattern.into() }
}

fn header(specifier: HeaderMatchSpecifier) -> HeaderMatcher {
    let message = route::HeaderMatcher {
        name: "x-user".into(),
        header_match_specifier: Some(specifier),
        ..Default::default()
    };
    HeaderMatcher::parse(message).unwrap()
}

#[test]
fn the_text_that_a_regex_begins_with_is_seen() {
    for (pattern, start) in [
        ("/Shop/Get", "/Shop/Get"),
        (r"/shop\.v1\.Cart/.*", "/shop.v1.Cart/"),
        (r"/a\*b", "/a*b"),
        // A repeated character may occur zero times.
        ("/carts?/x", "/cart"),
        ("/carts*", "/cart"),
        ("/carts+", "/cart"),
        ("/carts{0}", "/cart"),
        (r"/a\.?b", "/a"),
        // Any of several alternatives may match.
        ("/a|/b", ""),
        ("/a(b|c)", ""),
        (r"/a\|b", ""),
        // The literal ends where another construct begins.
        ("/a[bc]", "/a"),
        ("/a(b)", "/a"),
        ("/a.b", "/a"),
        ("/a^b", "/a"),
        ("/a$", "/a"),
        (r"/a\d", "/a"),
        (r"/a\x62", "/a"),
        (r"/a\<b", "/a"),
        ("/aé", "/a"),
        ("(?i)/a", ""),
        ("(?s)/a", ""),
        ("", ""),
    ] {
        let seen = Regex::new(pattern).unwrap().literal_start();
        assert_eq!(String::from_utf8(seen).unwrap(), start, "{pattern:?}");
    }
}

#[test]
fn texts_match_by_their_pattern() {
    for (pattern, yes, no) in [
        (MatchPattern::Exact("Ab".into()), &["Ab"][..], &["ab", "Abc", "", "A"][..]),
        (MatchPattern::Exact(String::new()), &[""], &["a"]),
        (MatchPattern::Prefix("Ab".into()), &["Ab", "Abc"], &["abc", "A", "", "cAb"]),
        (MatchPattern::Suffix("Ab".into()), &["Ab", "cAb"], &["cab", "b", "", "Abc"]),
        (MatchPattern::Contains("Ab".into()), &["Ab", "cAbc"], &["cabc", "A", ""]),
        (MatchPattern::SafeRegex(regex("A|Ab")), &["A", "Ab"], &["Abc", "cA", "", "Ab\n"]),
        (MatchPattern::SafeRegex(regex("")), &[""], &["a", "\n"]),
    ] {
        let matcher = text(pattern);
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
        assert!(!text(pattern.clone()).matches("AbC"));
        assert!(!ignoring_case(pattern).matches("xyz"));
    }
    // A part of a multi-byte character is not a match, and does not panic.
    assert!(!ignoring_case(MatchPattern::Prefix("a".into())).matches("é"));
}

#[test]
fn what_is_no_utf_8_is_matched_by_its_bytes() {
    for pattern in [
        MatchPattern::Prefix("a".into()),
        MatchPattern::Contains("a".into()),
        MatchPattern::SafeRegex(regex("a.")),
    ] {
        assert!(text(pattern.clone()).matches_bytes(b"a\xff"), "{pattern:?}");
        assert!(!text(pattern.clone()).matches_bytes(b"\xff"), "{pattern:?}");
    }
}

#[test]
fn regexes_match_the_whole_text() {
    for (pattern, text, expected) in [
        ("a+|b", "aaa", true),
        ("a+|b", "b", true),
        ("a+|b", "aab", false),
        ("a+|b", "xa", false),
        ("a+|b", "a\n", false),
        ("(?m)a$", "a", true),
        ("(?m)a$", "a\nb", false),
        // Classes are those of ASCII, unless the pattern needs Unicode.
        (r"\w", "é", false),
        (r"\p{L}", "é", true),
        ("[é]", "é", true),
        (".*", "é", true),
    ] {
        assert_eq!(Regex::new(pattern).unwrap().matches(text), expected, "{pattern:?} on {text:?}");
    }
}

#[test]
fn regexes_take_linear_time() {
    let text = "a".repeat(100_000);
    assert!(!Regex::new("(a*)*(a|aa)*b").unwrap().matches(&text));
}

#[test]
fn headers_match_by_their_condition() {
    let some = Some;
    for (specifier, yes, no) in [
        (HeaderMatchSpecifier::ExactMatch("a".into()), some("a"), some("A")),
        (HeaderMatchSpecifier::PrefixMatch("a".into()), some("ab"), some("ba")),
        (HeaderMatchSpecifier::SuffixMatch("a".into()), some("ba"), some("ab")),
        (HeaderMatchSpecifier::ContainsMatch("a".into()), some("bab"), some("b")),
        (HeaderMatchSpecifier::SafeRegexMatch(regex("a+")), some("aa"), some("aab")),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: -1, end: 2 }), some("-1"), some("2")),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 0, end: 9 }), some("0"), some("1.5")),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 0, end: 9 }), some("8"), some("")),
        (HeaderMatchSpecifier::PresentMatch(true), some(""), None),
        (HeaderMatchSpecifier::PresentMatch(false), None, some("")),
    ] {
        let matcher = header(specifier);
        let inverted = HeaderMatcher { invert: true, ..matcher.clone() };
        assert!(matcher.matches(yes) && !matcher.matches(no), "{matcher:?}");
        assert!(!inverted.matches(yes) && inverted.matches(no), "inverted {matcher:?}");
    }
}

#[test]
fn a63_a_header_can_be_matched_by_a_string_matcher() {
    let of = |ignore_case| {
        let match_pattern = Some(MatchPattern::Prefix("Ad".into()));
        header(HeaderMatchSpecifier::StringMatch(pb::StringMatcher { match_pattern, ignore_case }))
    };
    for (value, exactly, ignoring_case) in [("Ada", true, true), ("aDA", false, true), ("bob", false, false)]
    {
        assert_eq!(of(false).matches(Some(value)), exactly, "{value}");
        assert_eq!(of(true).matches(Some(value)), ignoring_case, "{value}");
    }
}

#[test]
fn a41_3_a_missing_header_has_no_value_to_match_inverted_or_not() {
    for specifier in [
        HeaderMatchSpecifier::ExactMatch(String::new()),
        HeaderMatchSpecifier::SafeRegexMatch(regex(".*")),
        HeaderMatchSpecifier::RangeMatch(Int64Range { start: i64::MIN, end: i64::MAX }),
    ] {
        let matcher = header(specifier);
        assert!(!matcher.matches(None), "{matcher:?}");
        assert!(!HeaderMatcher { invert: true, ..matcher }.matches(None));
    }
    let matcher = header(HeaderMatchSpecifier::ExactMatch(String::new()));
    assert!(HeaderMatcher { missing_is_empty: true, ..matcher }.matches(None));
}

#[test]
fn paths_match_by_their_pattern() {
    let prefix = |text: &str| PathSpecifier::Prefix(text.into());
    let whole = |text: &str| PathSpecifier::Path(text.into());
    let separated = |text: &str| PathSpecifier::PathSeparatedPrefix(text.into());
    let regex = |text: &str| PathSpecifier::SafeRegex(regex(text));
    for (specifier, case_sensitive, yes, no) in [
        (prefix("/Shop"), true, &["/Shop", "/Shop/cart", "/Shopping"][..], &["/shop", "/Sho", ""][..]),
        (prefix("/Shop"), false, &["/shop", "/sHOP/cart"], &["/sho", "x/shop"]),
        (prefix(""), true, &["", "/", "*"], &[]),
        (whole("/Shop"), true, &["/Shop"], &["/Shop/", "/shop", ""]),
        (whole("/Shop"), false, &["/Shop", "/shOP"], &["/shop/"]),
        (
            separated("/Shop"),
            true,
            &["/Shop", "/Shop/", "/Shop/cart"],
            &["/Shopping", "/shop", "/Sho", "/", ""],
        ),
        (separated("/Shop"), false, &["/shop", "/sHOP/cart"], &["/shopping/cart", "x/shop"]),
        (separated("/Shop/cart"), true, &["/Shop/cart/1"], &["/Shop", "/Shop/", "/Shop/carts"]),
        (regex("/a|/b"), true, &["/a", "/b"], &["/A", "/ab", "/a|/b"]),
        (regex("/a|/b"), false, &["/a", "/b"], &["/A"]),
    ] {
        let matcher = PathMatcher::parse(Some(specifier), case_sensitive).unwrap();
        for path in yes {
            assert!(matcher.matches(path), "{matcher:?} on {path:?}");
        }
        for path in no {
            assert!(!matcher.matches(path), "{matcher:?} on {path:?}");
        }
    }
}

#[test]
fn fractions_are_parts_of_a_million_and_never_more_than_the_whole() {
    use Denominator::{Hundred, Million, TenThousand};
    for (numerator, denominator, expected) in [
        (0, Hundred, 0),
        (7, Hundred, 70_000),
        (7, TenThousand, 700),
        (7, Million, 7),
        (100, Hundred, 1_000_000),
        (101, Hundred, 1_000_000),
        (u32::MAX, TenThousand, 1_000_000),
        (u32::MAX, Million, 1_000_000),
    ] {
        let fraction = Fraction::new(numerator, denominator);
        assert_eq!(fraction.per_million(), expected, "{fraction:?}");
        assert_eq!(fraction.matches(0), expected > 0);
        assert!(!fraction.matches(expected));
        assert_eq!(fraction.matches(999_999), expected == 1_000_000);
    }
}

#[test]
fn ranges_hold_the_addresses_of_their_prefix() {
    for (range, written, yes, no) in [
        ("10.1.2.3/8", "10.0.0.0/8", &["10.0.0.0", "10.255.255.255"][..], &["11.0.0.0", "9.255.255.255"][..]),
        ("10.1.2.3/31", "10.1.2.2/31", &["10.1.2.2", "10.1.2.3"], &["10.1.2.1", "10.1.2.4"]),
        ("10.1.2.3", "10.1.2.3/32", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.2"]),
        ("10.1.2.3/99", "10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2"]),
        ("10.1.2.3/0", "0.0.0.0/0", &["1.2.3.4", "::ffff:1.2.3.4"], &["::", "::1", "2001:db8::1"]),
        (
            "2001:db8::1/32",
            "2001:db8::/32",
            &["2001:db8::", "2001:db8:ffff::"],
            &["2001:db9::", "32.1.13.184"],
        ),
        ("2001:db8::1/255", "2001:db8::1/128", &["2001:db8::1"], &["2001:db8::2"]),
        ("::1/0", "::/0", &["::", "2001:db8::1"], &["10.0.0.1", "::ffff:10.0.0.1"]),
        ("::ffff:10.1.2.3/104", "10.0.0.0/8", &["10.9.9.9", "::ffff:10.9.9.9"], &["11.0.0.0"]),
        ("::ffff:10.1.2.3/96", "0.0.0.0/0", &["1.2.3.4"], &["::1"]),
    ] {
        let cidr: Cidr = range.parse().unwrap();
        assert_eq!(cidr.to_string(), written, "{range}");
        for address in yes {
            assert!(cidr.contains(address.parse().unwrap()), "{address} in {range}");
        }
        for address in no {
            assert!(!cidr.contains(address.parse().unwrap()), "{address} in {range}");
        }
    }
    for bad in ["", "shop", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/256", "10.0.0.0/8/9"] {
        let error = bad.parse::<Cidr>().unwrap_err();
        assert_eq!(error.to_string(), format!("{bad:?} is no range of addresses"));
    }
}

#[test]
fn a36_9_a_range_without_a_length_is_all_of_its_family() {
    let all = CidrRange { address_prefix: "10.1.2.3".into(), prefix_len: None };
    assert_eq!(Cidr::parse(&all).unwrap().to_string(), "0.0.0.0/0");
}

#[test]
fn a28_1_domains_fit_by_kind_then_length() {
    let fit = |pattern: &str| DomainPattern::new(pattern).unwrap().fit("Cart.Shop.example");
    let best_last = ["*", "cart.*", "cart.shop.*", "*.example", "*.shop.EXAMPLE", "cart.shop.example"];
    for pair in best_last.windows(2) {
        assert!(fit(pair[0]).unwrap() < fit(pair[1]).unwrap(), "{pair:?}");
    }
    for none in ["shop.example", "*.shop", "shop.*", "cart.shop.example*", "*cart.shop.example"] {
        assert_eq!(fit(none), None, "{none:?}");
    }
}

#[test]
fn matchers_are_written_as_the_messages_name_them() {
    let mut matcher = header(HeaderMatchSpecifier::SafeRegexMatch(regex("a+")));
    assert_eq!(
        serde_json::to_value(&matcher).unwrap(),
        json!({"name": "x-user", "string_match": {"safe_regex": "a+"}})
    );
    matcher = header(HeaderMatchSpecifier::RangeMatch(Int64Range { start: 1, end: 5 }));
    matcher.invert = true;
    assert_eq!(
        serde_json::to_value(&matcher).unwrap(),
        json!({"name": "x-user", "range_match": {"start": 1, "end": 5}, "invert": true})
    );
    assert_eq!(
        serde_json::to_value(ignoring_case(MatchPattern::Prefix("/A".into()))).unwrap(),
        json!({"prefix": "/A", "ignore_case": true})
    );
    let path = PathMatcher::parse(Some(PathSpecifier::Path("/a".into())), false).unwrap();
    assert_eq!(serde_json::to_value(path).unwrap(), json!({"path": "/a", "case_sensitive": false}));
    let path = PathMatcher::parse(Some(PathSpecifier::PathSeparatedPrefix("/a".into())), true).unwrap();
    assert_eq!(
        serde_json::to_value(path).unwrap(),
        json!({"path_separated_prefix": "/a", "case_sensitive": true})
    );
    assert_eq!(
        serde_json::to_value(Fraction::new(5, Denominator::TenThousand)).unwrap(),
        json!({"numerator": 5, "denominator": "TEN_THOUSAND"})
    );
    assert_eq!(serde_json::to_value("10.1.0.0/8".parse::<Cidr>().unwrap()).unwrap(), json!("10.0.0.0/8"));
}
