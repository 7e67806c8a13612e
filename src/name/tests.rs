use proptest::prelude::*;

use super::*;

const LISTENER: &str = "envoy.config.listener.v3.Listener";

fn parse(text: &str) -> ResourceName {
    ResourceName::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn xdstp(name: &ResourceName) -> &XdstpName {
    name.xdstp().expect("an xdstp name")
}

/// Returns part, position and reason of the error.
fn error(text: &str) -> (NamePart, usize, String) {
    match ResourceName::parse(text) {
        Ok(name) => panic!("{text} is {name:?}"),
        Err(error) => (error.part(), error.position(), error.reason().to_owned()),
    }
}

#[test]
fn strings_without_the_scheme_are_opaque() {
    for text in [
        "",
        "*",
        "foo",
        "outbound|80||a.b",
        "xdstp",
        "XDSTP://a/t/b",
        "a:/b/c",
        "http://a/t/b?x=1#y",
        " xdstp:",
    ] {
        let name = parse(text);
        assert_eq!((name.as_str(), name.to_string().as_str(), name.id()), (text, text, text));
        assert!(!name.is_xdstp() && !name.is_glob());
        assert_eq!((name.authority(), name.resource_type()), (None, None));
        assert!(name.context_params().is_none() && name.directives().is_none());
    }
}

#[test]
fn x1_a_type_alone_is_a_name_with_empty_authority_and_id() {
    let name = parse("xdstp:///envoy.config.listener.v3.Listener");
    assert_eq!((name.authority(), name.resource_type(), name.id()), (Some(""), Some(LISTENER), ""));
    assert_eq!(name.as_str(), "xdstp:///envoy.config.listener.v3.Listener");
}

#[test]
fn x1_broken_names_are_errors_and_never_opaque() {
    use NamePart::{Authority, ContextParams, Directives, Id, ResourceType, Scheme};
    let table = [
        ("xdstp:", Scheme, 0, "does not start with `xdstp://`"),
        ("xdstp:/a/b", Scheme, 0, "does not start with `xdstp://`"),
        ("xdstp:a/b", Scheme, 0, "does not start with `xdstp://`"),
        ("xdstp://foo", ResourceType, 11, "missing"),
        ("xdstp://foo/", ResourceType, 12, "missing"),
        ("xdstp:///", ResourceType, 9, "missing"),
        ("xdstp:////id", ResourceType, 9, "missing"),
        ("xdstp://?a=b", ResourceType, 9, "missing"),
        ("xdstp://a/ty%20pe/id", ResourceType, 12, "'%' cannot be part of it"),
        ("xdstp://a%/type/id", Authority, 9, "`%` is not followed by two hexadecimal digits"),
        ("xdstp://a/type/i%4xd", Id, 16, "`%` is not followed by two hexadecimal digits"),
        ("xdstp://a/type/%ff", Id, 15, "its escapes do not make UTF-8"),
        ("xdstp://a/t/i?k=v&l=%", ContextParams, 20, "`%` is not followed by two hexadecimal digits"),
        ("xdstp://foo/some-type#bar=baz", Directives, 22, "unknown directive \"bar\""),
    ];
    for (text, part, position, reason) in table {
        assert_eq!(error(text), (part, position, reason.to_owned()), "{text}");
    }
}

#[test]
fn x1_empty_segments_keys_and_values_round_trip() {
    for text in [
        "xdstp:///envoy.config.listener.v3.Listener/bar////baz",
        "xdstp:///type/?ab=",
        "xdstp:///type/foo?ab=",
        "xdstp:///type/foo?=cd",
        "xdstp:///type//",
        "xdstp://a/type/../b/./c",
    ] {
        assert_eq!(parse(text).to_string(), text.replace("/?", "?"), "{text}");
    }
    assert_eq!(parse("xdstp:///type/foo?=cd").context_params().and_then(|p| p.get("")), Some("cd"));
    assert_eq!(parse("xdstp:///type/foo?ab&&").as_str(), "xdstp:///type/foo?ab=");
}

#[test]
fn x1_an_escaped_slash_is_a_slash() {
    let name = parse("xdstp:///type/foo%2Fbar/baz");
    assert_eq!((name.id(), name.as_str()), ("foo/bar/baz", "xdstp:///type/foo/bar/baz"));
    assert_eq!(name, parse("xdstp:///type/foo/bar/baz"));
}

#[test]
fn x1_x2_every_part_is_decoded_and_escaped_again() {
    let text = "xdstp://f123%25%2F%3F%23o/envoy.config.listener.v3.Listener/b%25%3A%3F%23%5B%5Dar//baz\
                ?%25%23%5B%5D%26%3Dab=cde%25%23%5B%5D%26%3Df";
    let name = parse(text);
    assert_eq!(name.authority(), Some("f123%/?#o"));
    assert_eq!(name.id(), "b%:?#[]ar//baz");
    let params: Vec<_> = xdstp(&name).context_params().iter().collect();
    assert_eq!(params, [("%#[]&=ab", "cde%#[]&=f")]);
    assert_eq!(name.spelling(), text);
    assert_eq!(name.as_str(), text.replace("%3A", ":"));
}

#[test]
fn x1_alternatives_nest_with_their_escapes() {
    let text = "xdstp://a/t/x#entry=some_en%25%23%5B%5D%2Ctry,alt=xdstp://fo%2525%252F%253F%2523o/bar\
                %23alt=xdstp://bar/baz%2Centry=h%2525%2523%255B%255D%252Cuh";
    // Such an entry can be decoded, but is not valid in a name in an application (X10).
    assert_eq!(error(text).0, NamePart::Directives);
    let name = ResourceName::parse_received(text).unwrap();
    let outer = name.directives().unwrap();
    assert_eq!(outer.entry(), Some("some_en%#[],try"));
    let alt = outer.alt().unwrap();
    assert_eq!((alt.authority(), alt.resource_type()), (Some("fo%/?#o"), Some("bar")));
    let inner = alt.directives().unwrap();
    assert_eq!((inner.alt().unwrap().as_str(), inner.entry()), ("xdstp://bar/baz", Some("h%#[],uh")));
    assert_eq!(ResourceName::parse_received(&name.to_string()).unwrap(), name);
}

#[test]
fn x2_raw_characters_are_accepted_and_sent_escaped() {
    let name = parse("xdstp://a/t/foo x:1?p=\"é\"");
    assert_eq!(name.as_str(), "xdstp://a/t/foo%20x:1?p=%22%C3%A9%22");
    assert_eq!(name, parse("xdstp://a/t/foo%20x%3a1?p=%22%c3%a9%22"));
}

#[test]
fn x3_a_key_that_occurs_twice_is_an_error() {
    let (part, position, reason) = error("xdstp://a/t/i?k=1&l=2&%6b=1");
    assert_eq!((part, position), (NamePart::ContextParams, 22));
    assert_eq!(reason, "key \"k\" occurs twice");
    assert!(ResourceName::parse_received("xdstp://a/t/i?k=1&k=1").is_err());
}

#[test]
fn x4_x6_the_canonical_form_sorts_parameters_by_their_escaped_text() {
    assert_eq!(parse("xdstp://a/t/i?zz=1&aa=2").as_str(), "xdstp://a/t/i?aa=2&zz=1");
    assert_eq!(parse("xdstp://a/t/i?b=2&a=1"), parse("xdstp://a/t/i?a=1&b=2"));
    // `-` sorts before `=`.
    assert_eq!(parse("xdstp://a/t/i?a=1&a-=1").as_str(), "xdstp://a/t/i?a-=1&a=1");
}

#[test]
fn x5_names_of_servers_are_matched_after_canonicalising() {
    let held = parse("xdstp://a/t/i?a=1&b=2");
    assert_eq!(ResourceName::canonicalize("xdstp://a/t/i?b=2&a=1").as_deref(), Ok(held.as_str()));
    assert!(matches!(ResourceName::canonicalize("foo"), Ok(Cow::Borrowed("foo"))));
    assert!(matches!(ResourceName::canonicalize(held.as_str()), Ok(Cow::Borrowed(_))));
    assert!(ResourceName::canonicalize("xdstp://a").is_err());
}

#[test]
fn x7_later_sources_of_parameters_win() {
    let node =
        ContextParams::from_iter([("xds.node.id", "n"), ("k", "node"), ("xds.client_feature.f", "false")]);
    let name = parse("xdstp://a/t/i?k=url&l=1");
    let all = xdstp(&name).context_params().composed(&node, &["f"], &[("vip", "10.0.0.1")]);
    assert_eq!(
        name.with_context_params(all).as_str(),
        "xdstp://a/t/i?k=url&l=1&xds.client_feature.f=true&xds.node.id=n&xds.resource.vip=10.0.0.1"
    );
}

#[test]
fn x8_keys_of_the_client_cannot_be_written() {
    let (part, position, reason) = error("xdstp://a/t/i?k=1&xds.node.id=n");
    assert_eq!((part, position), (NamePart::ContextParams, 18));
    assert_eq!(reason, "key \"xds.node.id\" is reserved: `xds.*` is set by the client");
    assert!(ResourceName::parse("xdstp://a/t/i?%78ds.a=n").is_err());
    let received = ResourceName::parse_received("xdstp://a/t/i?xds.node.id=n").unwrap();
    assert_eq!(received.as_str(), "xdstp://a/t/i?xds.node.id=n");
}

#[test]
fn x9_a_missing_or_extra_parameter_makes_another_name() {
    let name = parse("xdstp://a/t/i?a=1&b=2");
    for other in ["xdstp://a/t/i?a=1", "xdstp://a/t/i?a=1&b=2&c=3", "xdstp://a/t/i", "xdstp://a/t/i?a=1&b=3"]
    {
        assert_ne!(name, parse(other));
    }
}

#[test]
fn x10_directives_are_known_and_occur_once() {
    let alt = "alt=xdstp://b/t/i";
    let table = [
        ("entry=a,entry=b".to_owned(), 22, "directive `entry` occurs twice"),
        (format!("{alt},{alt}"), 32, "directive `alt` occurs twice"),
        ("entry=a,".to_owned(), 22, "unknown directive \"\""),
        ("entry=".to_owned(), 20, "entry \"\" is not a name of letters, digits and `_-./~:`"),
        ("entry".to_owned(), 19, "entry \"\" is not a name of letters, digits and `_-./~:`"),
        ("entry=a b".to_owned(), 20, "entry \"a b\" is not a name of letters, digits and `_-./~:`"),
        ("alt=".to_owned(), 18, "alt is empty"),
        ("alt=file:///foo".to_owned(), 18, "alt \"file:///foo\": file:// is not supported"),
        ("alt=xdstp://b".to_owned(), 18, "alt: resource type at byte 9: missing"),
        ("Alt=xdstp://b/t".to_owned(), 14, "unknown directive \"Alt\""),
    ];
    for (directives, position, reason) in table {
        let text = format!("xdstp://a/t/i#{directives}");
        assert_eq!(error(&text), (NamePart::Directives, position, reason.to_owned()), "{text}");
    }
    let name = parse("xdstp://a/t/i#entry=0aZ_-./~:");
    assert_eq!(name.directives().and_then(Directives::entry), Some("0aZ_-./~:"));
    assert!(parse("xdstp://a/t/i#").directives().is_none());
}

#[test]
fn x21_an_alternative_may_be_an_old_style_name() {
    let name = parse("xdstp://a/t/i#alt=outbound|80%2C%23x,entry=e");
    let alt = name.directives().and_then(Directives::alt).unwrap();
    assert_eq!((alt.as_str(), alt.is_xdstp()), ("outbound|80,#x", false));
    assert_eq!(parse(&name.to_string()), name);
}

#[test]
fn x10_alternatives_do_not_nest_without_end() {
    let nested = |depth: usize| {
        (0..depth).fold("xdstp://a/t/i".to_owned(), |inner, _| {
            let mut name = "xdstp://a/t/i#alt=".to_owned();
            encoding::encode_into(&mut name, &inner, encoding::DIRECTIVE);
            name
        })
    };
    assert!(ResourceName::parse(&nested(16)).is_ok());
    assert!(ResourceName::parse(&nested(17)).is_err());
}

#[test]
fn directives_are_no_part_of_the_canonical_form() {
    let name = parse("xdstp://a/t/i?b=1&a=2#entry=e,alt=xdstp://b/t/i?d=1&c=2");
    assert_eq!(name.as_str(), "xdstp://a/t/i?a=2&b=1");
    assert_eq!(name.to_string(), "xdstp://a/t/i?a=2&b=1#alt=xdstp://b/t/i?c=2&d=1,entry=e");
    let plain = parse("xdstp://a/t/i?a=2&b=1");
    assert_ne!(name, plain);
    assert_eq!(name.without_directives(), plain);
    assert_eq!(plain.without_directives(), plain);
}

#[test]
fn x15_a_glob_ends_in_a_star_segment() {
    for glob in ["xdstp://a/t/*", "xdstp://a/t/foo/*", "xdstp:///t/a/b/c/*?x=y"] {
        assert!(parse(glob).is_glob(), "{glob}");
    }
    for name in ["*", "foo/*", "xdstp://a/t", "xdstp://a/t/foo*", "xdstp://a/t/*/foo", "xdstp://a/t/**"] {
        assert!(!parse(name).is_glob(), "{name}");
    }
}

#[test]
fn x16_a_glob_matches_one_segment_with_all_else_equal() {
    let glob = parse("xdstp://a/t/foo/*?x=1&y=2");
    let member = parse("xdstp://a/t/foo/a?y=2&x=1");
    assert!(glob.matches(&member));
    assert_eq!(member.enclosing_glob(), Some(glob.clone()));
    for other in [
        "xdstp://a/t/foo/d/e?x=1&y=2",
        "xdstp://a/t/foo?x=1&y=2",
        "xdstp://a/t/foo/?x=1&y=2",
        "xdstp://a/t/foo/*?x=1&y=2",
        "xdstp://a/t/bar/a?x=1&y=2",
        "xdstp://b/t/foo/a?x=1&y=2",
        "xdstp://a/u/foo/a?x=1&y=2",
        "xdstp://a/t/foo/a?x=1",
        "xdstp://a/t/foo/a?x=1&y=2&z=3",
        "foo/a",
    ] {
        assert!(!glob.matches(&parse(other)), "{other}");
        assert_ne!(parse(other).enclosing_glob().as_ref(), Some(&glob), "{other}");
    }
    assert!(!member.matches(&member));
    assert!(parse("xdstp://a/t/*").matches(&parse("xdstp://a/t/x")));
}

#[test]
fn x12_a_list_is_known_by_its_type() {
    for (text, list, collection) in [
        ("xdstp://a/envoy.config.listener.v3.ListenerCollection/x", true, true),
        ("xdstp://a/envoy.config.listener.v3.ListenerCollection/x#entry=e", true, true),
        ("xdstp://a/envoy.config.listener.v3.ListenerCollection/*", false, true),
        ("xdstp://a/envoy.config.listener.v3.Listener/*", false, true),
        ("xdstp://a/envoy.config.listener.v3.Listener/x", false, false),
        ("ListenerCollection", false, false),
    ] {
        let name = parse(text);
        assert_eq!((name.is_list(), name.is_collection()), (list, collection), "{text}");
    }
}

#[test]
fn errors_do_not_carry_the_whole_of_a_long_name() {
    let error = ResourceName::parse(&format!("xdstp://{}", "é".repeat(5000))).unwrap_err();
    assert!(error.to_string().len() < 800, "{error}");
}

fn segment() -> impl Strategy<Value = String> {
    "[a-z%/:?#\\[\\]&=,* é\"]{0,8}"
}

prop_compose! {
    fn parts()(
        authority in segment(),
        resource_type in "[a-z.]{1,10}",
        id in segment(),
        params in prop::collection::btree_map("[a-z%#&= -]{0,4}", segment(), 0..4),
    ) -> XdstpParts {
        XdstpParts { authority, resource_type, id, params: params.into_iter().collect() }
    }
}

#[derive(Debug, Clone)]
struct XdstpParts {
    authority: String,
    resource_type: String,
    id: String,
    params: Vec<(String, String)>,
}

impl XdstpParts {
    fn text(&self) -> String {
        let mut text = "xdstp://".to_owned();
        encoding::encode_into(&mut text, &self.authority, encoding::AUTHORITY);
        text.push('/');
        text.push_str(&self.resource_type);
        text.push('/');
        encoding::encode_into(&mut text, &self.id, encoding::PATH);
        for (index, (key, value)) in self.params.iter().enumerate() {
            text.push(if index == 0 { '?' } else { '&' });
            encoding::encode_into(&mut text, key, encoding::PARAM);
            text.push('=');
            encoding::encode_into(&mut text, value, encoding::PARAM);
        }
        text
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(parts in parts()) {
        let name = parse(&parts.text());
        prop_assert_eq!(name.authority(), Some(parts.authority.as_str()));
        prop_assert_eq!(name.resource_type(), Some(parts.resource_type.as_str()));
        prop_assert_eq!(name.id(), parts.id.as_str());
        let params: Vec<_> = xdstp(&name).context_params().iter().collect();
        let written: Vec<_> = parts.params.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert_eq!(params, written);
    }

    #[test]
    fn x4_the_order_of_parameters_does_not_matter(parts in parts(), turn in 0_usize..4) {
        let mut turned = parts.clone();
        let by = turn.min(parts.params.len());
        turned.params.rotate_left(by);
        prop_assert_eq!(parse(&parts.text()), parse(&turned.text()));
        prop_assert_eq!(parse(&parts.text()).canonical(), parse(&turned.text()).canonical());
    }

    #[test]
    fn the_canonical_form_is_stable(text in "xdstp://[a-z%25?#&=/*:, \\[\\]é]{0,40}") {
        if let Ok(name) = ResourceName::parse(&text) {
            let again = parse(&name.to_string());
            prop_assert_eq!(&again, &name);
            prop_assert_eq!(again.to_string(), name.to_string());
            prop_assert_eq!(parse(name.as_str()).canonical(), name.canonical());
        }
    }

    #[test]
    fn x16_the_glob_of_a_canonical_name_is_the_one_that_encloses_it(parts in parts(), stars in "[a*]{0,2}") {
        for text in [parts.text(), format!("{}/{stars}", parts.text()), "a/b".to_owned()] {
            let name = parse(&text);
            let (found, glob) = (glob_of(name.as_str()), name.enclosing_glob());
            prop_assert_eq!(found.as_deref(), glob.as_ref().map(ResourceName::as_str));
        }
    }

    #[test]
    fn no_text_panics(text in "(xdstp:(//)?)?\\PC{0,60}") {
        let _ = ResourceName::parse(&text);
        let _ = ResourceName::parse_received(&text);
        let _ = ResourceName::canonicalize(&text);
    }
}
