//! Text as a bootstrap in Envoy's format: it is read, or every problem has a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::config::Bootstrap;

fuzz_target!(|text: &str| {
    match Bootstrap::from_envoy_text(text) {
        Ok(bootstrap) => {
            assert_eq!(Bootstrap::from_envoy_text(text).as_ref(), Ok(&bootstrap));
            let told = |problem: &xdskit::config::ValidationError| {
                !problem.path().is_empty() && !problem.reason().is_empty()
            };
            assert!(bootstrap.warnings().iter().all(told));
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.errors().iter().all(|problem| !problem.reason().is_empty()));
        }
    }
});
