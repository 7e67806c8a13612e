//! The order of the choice. The default of the process is tried in `tests/trial`, since it can be installed once.

use super::*;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(compiled().expect("tests have a feature with cryptography"))
}

#[test]
fn the_provider_of_the_application_precedes_those_of_process_and_features() {
    let (own, process, features) = (provider(), provider(), provider());
    let first = |providers| Crypto::first(providers);
    let (of_own, of_process, of_features) = (
        first([Some(&own), None, None]),
        first([Some(&process), None, None]),
        first([Some(&features), None, None]),
    );
    assert_ne!(of_own, of_process);
    assert_eq!(first([Some(&own), Some(&process), Some(&features)]), of_own);
    assert_eq!(first([None, Some(&process), Some(&features)]), of_process);
    assert_eq!(first([None, None, Some(&features)]), of_features);
    assert_eq!(Crypto::choose(Some(&own)), of_own);
}

#[test]
fn without_a_choice_the_compiled_provider_is_one_value() {
    let chosen = Crypto::choose(None);
    assert_eq!(chosen, Crypto::choose(None));
    assert!(chosen.provider().is_ok());
}

#[test]
fn without_any_provider_the_error_names_features_and_settings() {
    let none = Crypto::first([None, None, None]);
    assert_eq!(none, Crypto::missing());
    let error = none.provider().expect_err("there is none").to_string();
    let names = ["`tls-ring`", "`tls-aws-lc`", "`CryptoProvider::install_default`", "`crypto_provider`"];
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
}
