use std::time::Duration;

use bytes::Bytes;

use super::*;

fn set(store: &mut Store, type_url: &str, name: &str, bytes: &str) -> bool {
    store.update(|tx| {
        tx.set(AnyResource::new(type_url, name, bytes.to_owned()));
    })
}

fn contents(store: &Store, type_url: &str) -> Vec<(String, String, u64)> {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    store
        .get(type_url)
        .iter()
        .map(|(name, stored)| (name.to_owned(), text(stored.bytes()), stored.version()))
        .collect()
}

#[test]
fn a_transaction_moves_each_changed_type_once() {
    let mut store = Store::new();
    assert!(store.update(|tx| {
        tx.set(AnyResource::new("t", "b", "1")).set(AnyResource::new("t", "a", "1"));
        tx.set(AnyResource::new("u", "c", "1"));
    }));
    assert_eq!((store.get("t").version(), store.get("u").version(), store.get("v").version()), (1, 1, 0));
    assert_eq!(contents(&store, "t"), [("a".into(), "1".into(), 1), ("b".into(), "1".into(), 1)]);

    assert!(set(&mut store, "t", "b", "2"));
    assert_eq!((store.get("t").version(), store.get("u").version()), (2, 1));
    assert_eq!(contents(&store, "t"), [("a".into(), "1".into(), 1), ("b".into(), "2".into(), 2)]);
    assert_eq!(store.type_urls().collect::<Vec<_>>(), ["t", "u"]);
}

#[test]
fn equal_bytes_and_missing_names_change_nothing() {
    let mut store = Store::new();
    assert!(set(&mut store, "t", "a", "1"));
    assert!(!set(&mut store, "t", "a", "1"));
    assert!(!store.update(|tx| {
        tx.remove("t", "z").remove("u", "a").clear("w");
    }));
    assert_eq!((store.get("t").version(), store.get("u").version()), (1, 0));
}

#[test]
fn the_last_word_on_a_name_counts() {
    let mut store = Store::new();
    set(&mut store, "t", "a", "1");
    assert!(!store.update(|tx| {
        tx.remove("t", "a").set(AnyResource::new("t", "a", "1"));
        tx.set(AnyResource::new("t", "b", "1")).remove("t", "b");
    }));
    assert!(store.update(|tx| {
        tx.set(AnyResource::new("t", "b", "1")).clear("t").set(AnyResource::new("t", "c", "1"));
    }));
    assert_eq!(contents(&store, "t"), [("c".into(), "1".into(), 2)]);
}

#[test]
fn a_clone_is_a_moment() {
    let mut store = Store::new();
    set(&mut store, "t", "a", "1");
    set(&mut store, "t", "b", "1");
    let before = store.clone();
    store.update(|tx| {
        tx.remove("t", "a").set(AnyResource::new("t", "c", "1"));
    });
    assert_eq!(before.get("t").len(), 2);
    let (old, new) = (before.get("t"), store.get("t"));
    assert_eq!(new.changed_since(&old).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(new.changed_since(&new).count(), 0);
}

#[test]
fn versions_carry_the_prefix() {
    assert_eq!(Store::new().with_version_prefix("run-1-").version(7), "run-1-7");
    assert_eq!(Store::new().version(7), "7");
}

#[test]
fn differences_among_many_are_all_found() {
    let mut store = Store::new();
    let name = |i: u32| format!("resource-{i:06}");
    store.update(|tx| {
        (0..20_000).for_each(|i| {
            tx.set(AnyResource::new("t", name(i), "1"));
        });
    });
    let before = store.get("t");
    let mut expected = Vec::new();
    for i in (0..20_000).step_by(777) {
        match i % 3 {
            0 => store.update(|tx| {
                tx.remove("t", &name(i));
            }),
            1 => set(&mut store, "t", &name(i), "2"),
            _ => set(&mut store, "t", &format!("{}x", name(i)), "1"),
        };
        expected.push(if i % 3 == 2 { format!("{}x", name(i)) } else { name(i) });
    }
    assert_eq!(store.get("t").changed_since(&before).collect::<Vec<_>>(), expected);
}

#[test]
fn x4_names_are_the_same_whatever_the_order_of_their_parameters() {
    let mut store = Store::new();
    let (name, other) = ("xdstp://a/T/foo?x=1&y=2", "xdstp://a/T/foo?y=2&x=1");
    assert!(set(&mut store, "t", other, "1"));
    assert!(store.get("t").resource(name).is_some());
    assert_eq!(contents(&store, "t"), [(other.into(), "1".into(), 1)], "it is shown as it was written");
    assert!(store.update(|tx| {
        tx.remove("t", name);
    }));
    assert!(store.get("t").is_empty());
}

#[test]
fn metadata_of_a_resource_is_a_change_like_its_bytes() {
    let mut store = Store::new();
    let plain = || AnyResource::new("t", "a", "1");
    let ways = [
        plain(),
        plain().with_ttl(Duration::from_secs(1)),
        plain().with_ttl(Duration::from_secs(2)),
        plain().with_aliases(["b"]),
        plain().with_body_type("u"),
    ];
    for (before, resource) in ways.into_iter().enumerate() {
        for expected in [true, false] {
            let changed = store.update(|tx| {
                tx.set(resource.clone());
            });
            assert_eq!(changed, expected, "{resource:?}");
        }
        assert_eq!(store.get("t").version(), before as u64 + 1);
    }
    let last = store.get("t");
    let last = last.resource("a").unwrap();
    assert_eq!((last.ttl(), last.aliases().count(), last.body_type()), (None, 0, Some("u")));
}

#[test]
fn an_error_takes_the_place_of_a_resource() {
    let mut store = Store::new();
    set(&mut store, "t", "a", "1");
    let fail = |store: &mut Store, code| {
        store.update(|tx| {
            tx.set_error("t", "a", code, "no");
        })
    };
    assert!(fail(&mut store, 7));
    assert!(!fail(&mut store, 7));
    assert!(fail(&mut store, 5));
    let now = store.get("t");
    assert!(now.is_empty());
    let error = now.error("a").unwrap();
    assert_eq!((error.name(), error.code(), error.message(), now.version()), ("a", 5, "no", 3));
    assert!(set(&mut store, "t", "a", "1"));
    assert!(store.get("t").error("a").is_none());
    assert!(fail(&mut store, 7));
    assert!(store.update(|tx| {
        tx.clear("t");
    }));
    assert!(store.get("t").error("a").is_none());
}

#[test]
fn resources_are_found_by_glob_alias_and_time_to_live() {
    let mut store = Store::new();
    let ttl = Duration::from_secs(3);
    let find = |store: &Store| {
        let now = store.get("t");
        let texts = |names: Vec<&str>| names.join(" ");
        let (members, aliased) = (now.members("xdstp://a/T/*?x=1").collect(), now.aliased("b").collect());
        (texts(members), texts(aliased), texts(now.of_ttl(ttl).collect()), now.ttls().count())
    };
    let name = "xdstp://a/T/m?x=1";
    store.update(|tx| {
        tx.set(AnyResource::new("t", name, "1")).set(AnyResource::new("t", "xdstp://a/T/m", "1"));
        tx.set(AnyResource::new("t", "c", "1").with_ttl(ttl).with_aliases(["b"]));
    });
    assert_eq!(find(&store), (name.into(), "c".into(), "c".into(), 1));
    store.update(|tx| {
        tx.set(AnyResource::new("t", "c", "1").with_aliases(["d"])).remove("t", name);
    });
    assert_eq!(find(&store), (String::new(), String::new(), String::new(), 0));
}

#[test]
fn cp3_a_type_has_the_version_that_was_set_until_it_changes_without_one() {
    let mut store = Store::new().with_version_prefix("p");
    // Returns whether anything changed, and the version then.
    let mut update = |text: &'static str, version: Option<&'static str>| {
        let changed = store.update(|tx| {
            tx.set(AnyResource::new(BANNER, "a", text));
            if let Some(version) = version {
                tx.set_version(BANNER, version);
            }
        });
        (changed, store.version_of_type(&store.get(BANNER)))
    };
    assert_eq!(update("1", Some("release-1")), (true, "release-1".into()));
    assert_eq!(update("1", Some("release-1")), (false, "release-1".into()));
    assert_eq!(update("1", None), (false, "release-1".into()));
    assert_eq!(update("1", Some("release-2")), (true, "release-2".into()), "for the next response");
    assert_eq!(update("2", None), (true, "p3".into()));
}

const BANNER: &str = "type.googleapis.com/example.Banner";
