//! Names, globs, redirects and errors.

use super::*;

const A: &str = "xdstp://auth/T/foo/a?x=1&y=2";
const B: &str = "xdstp://auth/T/foo/b?x=1&y=2";
const GLOB: &str = "xdstp://auth/T/foo/*?x=1&y=2";

fn wrapping() -> Pair {
    let settings = Settings { wrap_resources: true, ..Settings::default() };
    Pair { session: Session::new(settings), ..Pair::default() }
}

/// `NAME=BYTES... !NAME=CODE...`; resources without a wrapper have no name.
fn sent(response: &DiscoveryResponse) -> String {
    let resources = response.resources.iter().map(|any| {
        if any.type_url != type_url::WRAPPER {
            return format!("={}", String::from_utf8_lossy(&any.value));
        }
        let wrapper = Resource::decode(any.value.clone()).unwrap();
        format!("{}={}", wrapper.name, String::from_utf8_lossy(&wrapper.resource.unwrap().value))
    });
    let errors = response.resource_errors.iter().map(|error| {
        let code = error.error_detail.as_ref().unwrap().code;
        format!("!{}={code}", error.resource_name.as_ref().unwrap().name)
    });
    let all = resources.chain(errors).collect::<Vec<_>>().join(" ");
    all.replace(GLOB, "GLOB").replace(A, "A").replace(B, "B")
}

fn exchange(pair: &mut Pair, type_url: &str, names: &[&str]) -> Vec<String> {
    assert_ne!(pair.request(type_url, names), Handled::Outdated);
    std::iter::from_fn(|| pair.poll()).map(|response| sent(&response)).collect()
}

#[test]
fn x5_names_are_matched_whatever_the_order_of_their_parameters() {
    let odd = "xdstp://auth/T/foo/a?y=2&x=1";
    let mut pair = wrapping();
    pair.set(&[(EDS, odd, "1")]);
    assert_eq!(exchange(&mut pair, EDS, &[A]), [format!("{odd}=1")]);
    assert_eq!(pair.request(EDS, &[odd]), understood(accepted("1"), false));
    pair.set(&[(EDS, A, "2")]);
    assert_eq!(exchange(&mut pair, EDS, &[odd]), ["A=2"]);
}

#[test]
fn x19_a_glob_stands_for_its_members() {
    for (type_url, after_removal) in [(EDS, ""), (CDS, "B=b2")] {
        let mut pair = wrapping();
        pair.set(&[(type_url, A, "a"), (type_url, B, "b"), (type_url, "other", "o")]);
        assert_eq!(exchange(&mut pair, type_url, &[GLOB, "other"]), ["other=o A=a B=b"]);
        pair.set(&[(type_url, "xdstp://auth/T/foo/d/e?x=1&y=2", "no member")]);
        assert_eq!(exchange(&mut pair, type_url, &[GLOB]), Vec::<String>::new());
        pair.set(&[(type_url, B, "b2")]);
        let expected = if type_url == CDS { "A=a B=b2" } else { "B=b2" };
        assert_eq!(exchange(&mut pair, type_url, &[GLOB]), [expected]);
        pair.remove(type_url, A);
        let sent = exchange(&mut pair, type_url, &[GLOB]).join("");
        assert_eq!(sent, after_removal, "absence is meaningful for types with full state only");
    }
}

#[test]
fn x20_a_redirect_is_wrapped_and_so_is_what_has_a_name_of_its_own() {
    let mut pair = Pair::default();
    pair.store.update(|tx| {
        tx.set(AnyResource::redirect(CDS, "a", B).unwrap());
        tx.set(AnyResource::new(CDS, "b", "b1")).set(AnyResource::new(CDS, "own", "c").with_name("c"));
    });
    pair.request(CDS, &[]);
    let response = pair.poll().unwrap();
    let types: Vec<_> = response.resources.iter().map(|any| any.type_url.as_str()).collect();
    assert_eq!(types, [type_url::WRAPPER, CDS, type_url::WRAPPER]);
    let wrapper = Resource::decode(response.resources[0].value.clone()).unwrap();
    assert_eq!(wrapper.name, "a");
    assert_eq!(wrapper.resource.unwrap().type_url, "type.googleapis.com/xds.core.v3.ResourceLocator");
}

#[test]
fn b6_errors_are_sent_in_place_of_resources() {
    let mut pair = Pair::with(&[(CDS, "a", "a1"), (EDS, "a", "a1")]);
    let fail = |pair: &mut Pair, name: &str, code: i32| {
        pair.store.update(|tx| {
            tx.set_error(CDS, name, code, "because").set_error(EDS, name, code, "because");
        })
    };
    fail(&mut pair, "b", 7);
    assert_eq!(exchange(&mut pair, CDS, &["a", "b"]), ["=a1 !b=7"]);
    assert_eq!(exchange(&mut pair, EDS, &["a", "b"]), ["=a1 !b=7"]);
    fail(&mut pair, "b", 14);
    fail(&mut pair, "c", 14);
    assert_eq!(exchange(&mut pair, CDS, &["a", "b"]), ["=a1 !b=14"], "with all that there is");
    assert_eq!(exchange(&mut pair, EDS, &["a", "b"]), ["!b=14"]);
    pair.set(&[(CDS, "b", "b1"), (EDS, "b", "b1")]);
    assert_eq!(exchange(&mut pair, CDS, &["a", "b"]), ["=a1 =b1"]);
    assert_eq!(exchange(&mut pair, EDS, &["a", "b"]), ["=b1"]);
    fail(&mut pair, "a", 5);
    assert_eq!(exchange(&mut pair, CDS, &["*"]), ["=b1"], "under a wildcard absence means removal");
}

#[test]
fn b6_a_glob_and_its_members_may_have_errors() {
    let mut pair = wrapping();
    pair.set(&[(CDS, B, "b")]);
    pair.store.update(|tx| {
        tx.set_error(CDS, A, 7, "no");
    });
    assert_eq!(exchange(&mut pair, CDS, &[GLOB]), ["B=b !A=7"]);
    pair.store.update(|tx| {
        tx.clear(CDS).set_error(CDS, GLOB, 7, "no");
    });
    assert_eq!(exchange(&mut pair, CDS, &[GLOB]), ["!GLOB=7"]);
}
