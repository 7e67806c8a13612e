//! Text as a bootstrap: it is read, or every problem has a place and a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::config::Bootstrap;

fuzz_target!(|text: &str| {
    match Bootstrap::from_json(text) {
        Ok(bootstrap) => assert_eq!(Bootstrap::from_json(text).as_ref(), Ok(&bootstrap)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
