//! Text as the name of a resource: the canonical form is a name, and the same one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::name::ResourceName;

fuzz_target!(|text: &str| {
    check(text);
    // Nearly all that a fuzzer writes by itself is opaque.
    check(&format!("xdstp:{text}"));
});

fn check(text: &str) {
    let Ok(name) = ResourceName::parse(text) else { return };
    let canonical = name.canonical();
    let again = ResourceName::parse(&canonical).expect("a canonical name is a name");
    assert_eq!(again, name.without_directives());
    assert_eq!(again.canonical(), canonical);
    assert_eq!(ResourceName::canonicalize(&canonical).as_deref(), Ok(&*canonical));
    if let Some(glob) = again.enclosing_glob() {
        assert!(glob.is_glob() && glob.matches(&again), "{glob:?} does not hold {again:?}");
    }
}
