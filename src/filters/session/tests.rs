use std::time::Duration;

use super::*;

/// Headers `cookie` with these values.
struct Cookies<'a>(&'a [&'a [u8]]);

impl RequestHeaders for Cookies<'_> {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if name.eq_ignore_ascii_case("cookie") {
            self.0.iter().for_each(|value| each(value));
        }
    }
}

fn read(lines: &[&str]) -> Result<Option<SessionState>, IgnoredCookie> {
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    SessionState::read("sid", &Cookies(&lines))
}

/// The first address that a cookie names, if it names one.
fn port(lines: &[&str]) -> Option<u16> {
    read(lines).unwrap().map(|state| state.addresses[0].port())
}

fn state(content: &str) -> Result<SessionState, IgnoredCookie> {
    SessionState::parse(content)
}

fn cookie(path: &str, ttl: Duration) -> SessionCookie {
    SessionCookie { name: "sid".into(), path: path.into(), ttl }
}

#[test]
fn ch8_2_the_first_cookie_with_the_exact_name_is_read() {
    let [one, two] = [1, 2].map(|port| STANDARD.encode(format!("127.0.0.1:{port}")));
    assert_eq!(port(&[]), None);
    assert_eq!(port(&[&format!("sid={one}")]), Some(1));
    assert_eq!(port(&[&format!("a=b; sid={one}; sid={two}")]), Some(1));
    assert_eq!(port(&[&format!("a=b;sid={two}  ;c")]), Some(2), "spaces are trimmed, and may be missing");
    assert_eq!(port(&[&format!(";; ;sid; sid={two}")]), Some(2));
    assert_eq!(port(&["a=b", &format!("  sid={two}"), &format!("sid={one}")]), Some(2), "of all headers");
    for other in ["SID", "sid ", "sid2", "si", "xsid"] {
        assert_eq!(port(&[&format!("{other}={one}")]), None, "{other}");
    }
    assert_eq!(port(&[&format!("sid=\"{one}\"")]), Some(1), "in the quotes of Envoy's documentation");
}

#[test]
fn ch8_2_a_cookie_of_another_form_is_ignored() {
    for value in
        ["?", "MTI3LjAuMC4xOjE===", "MTI3LjAu MC4xOjE", "MTI3LjAuMC4xOjE_", "\"", "sid=MTI3LjAuMC4xOjE="]
    {
        assert_eq!(read(&[&format!("sid={value}")]), Err(IgnoredCookie::NotBase64), "{value}");
    }
    assert_eq!(read(&[&format!("sid={}", STANDARD.encode([0xff, 0xfe]))]), Err(IgnoredCookie::NotUtf8));
    assert_eq!(read(&["sid="]), Err(IgnoredCookie::NoAddress));
    // A good one behind it does not count, and bytes that are not UTF-8 elsewhere do not matter.
    assert_eq!(read(&["sid=?; sid=MTI3LjAuMC4xOjE="]), Err(IgnoredCookie::NotBase64));
    let lines: [&[u8]; 2] = [b"a=\xff; \xff", b"sid=MTI3LjAuMC4xOjE="];
    assert!(SessionState::read("sid", &Cookies(&lines)).unwrap().is_some());
}

#[test]
fn ch8_2_the_padding_is_optional() {
    for value in ["MTI3LjAuMC4xOjE=", "MTI3LjAuMC4xOjE"] {
        assert_eq!(port(&[&format!("sid={value}")]), Some(1), "{value}");
    }
}

#[test]
fn ch8_3_addresses_of_another_form_are_skipped() {
    let addresses = |content: &str| {
        let state = state(content).unwrap();
        state.addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(addresses("10.0.0.1:80"), ["10.0.0.1:80"]);
    assert_eq!(addresses("10.0.0.1:80,[2001:db8::1]:443;c"), ["10.0.0.1:80", "[2001:db8::1]:443"]);
    assert_eq!(addresses("10.0.0.1,x,, 10.0.0.2:1,::1:80,shop:80,10.0.0.3:99999,10.0.0.4:4"), ["10.0.0.4:4"]);
    let many: Vec<_> = (1..=20).map(|port| format!("10.0.0.1:{port}")).collect();
    assert_eq!(addresses(&format!("bad,{}", many.join(","))), many[..16]);
    for none in ["", ";cart", "10.0.0.1;10.0.0.1:80", "unix:/tmp/x", ","] {
        assert_eq!(state(none), Err(IgnoredCookie::NoAddress), "{none}");
    }
}

#[test]
fn ch8_3_ch13_12_the_cluster_is_read_with_and_without_prefix_and_quotes() {
    let names = |cluster: &str, name: &str| state(&format!("10.0.0.1:80{cluster}")).unwrap().names(name);
    for form in [";cart", ";cluster:cart", ";\"cart\"", ";\"cluster:cart\""] {
        assert!(names(form, "cart"), "{form}");
        assert!(!names(form, "art"), "{form}");
    }
    assert!(names(";cluster:a:b;c", "a:b;c"), "of the first semicolon only");
    assert!(names(";cluster:cart", "cluster:cart"), "a cluster may be called so");
    for none in ["", ";", ";cart\"", ";\"cart", "; cart"] {
        assert!(!names(none, "cart"), "{none}");
    }
}

#[test]
fn ch8_5_the_attributes_of_a_cookie_are_in_their_order() {
    let set = |path: &str, ttl| set_cookie(&cookie(path, ttl), None, "10.0.0.1:80", "cart").unwrap();
    let content = STANDARD.encode("10.0.0.1:80;cart");
    assert_eq!(content, "MTAuMC4wLjE6ODA7Y2FydA==");
    assert_eq!(set("", Duration::ZERO), format!("sid={content}; HttpOnly"));
    assert_eq!(set("/shop", Duration::ZERO), format!("sid={content}; HttpOnly; Path=/shop"));
    assert_eq!(set("", Duration::from_millis(1_999)), format!("sid={content}; HttpOnly; Max-Age=1"));
    assert_eq!(set("/", Duration::from_millis(999)), format!("sid={content}; HttpOnly; Path=/; Max-Age=0"));
    assert_eq!(
        set("/", Duration::from_secs(3_600)),
        format!("sid={content}; HttpOnly; Path=/; Max-Age=3600")
    );
}

#[test]
fn ch8_6_a_cookie_is_set_if_the_request_has_another_one() {
    let cookie = cookie("/", Duration::ZERO);
    let is_set = |content: &str, addresses: &str, cluster: &str| {
        set_cookie(&cookie, state(content).ok().as_ref(), addresses, cluster).is_some()
    };
    let endpoint = "10.0.0.1:80,10.0.0.2:80";
    assert!(is_set("", endpoint, "cart"), "there is none");
    assert!(!is_set("10.0.0.1:80,10.0.0.2:80;cart", endpoint, "cart"));
    assert!(!is_set("10.0.0.1:80,10.0.0.2:80;cluster:cart", endpoint, "cart"));
    assert!(is_set("10.0.0.1:80,10.0.0.2:80", endpoint, "cart"), "it has no cluster");
    assert!(is_set("10.0.0.1:80,10.0.0.2:80;web", endpoint, "cart"));
    // The list is compared as it is written.
    for other in
        ["10.0.0.1:80", "10.0.0.2:80,10.0.0.1:80", "10.0.0.1:80,10.0.0.2:80,", "10.0.0.1:80,10.0.0.2:080"]
    {
        assert!(is_set(&format!("{other};cart"), endpoint, "cart"), "{other}");
    }
}

#[test]
fn ch8_6_what_is_set_is_what_is_read() {
    let cookie = cookie("/", Duration::ZERO);
    let set = set_cookie(&cookie, None, "10.0.0.1:80,[::1]:80", "a;b").unwrap();
    let state = read(&[set.split_once("; ").unwrap().0]).unwrap().unwrap();
    assert_eq!(state.addresses.len(), 2);
    assert_eq!(set_cookie(&cookie, Some(&state), "10.0.0.1:80,[::1]:80", "a;b"), None);
}
