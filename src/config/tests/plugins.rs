//! Certificate providers of plugins that an application registers (A29-9).

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::resource::{Context, Custom, Extension, Invalid, Payload, Registry};

/// A plugin of an application.
#[derive(Debug, PartialEq, Serialize)]
struct Vault {
    address: String,
}

impl Extension for Vault {
    const TYPE_NAME: &'static str = "vault";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(config) = payload else { return Err(Invalid::new("must be JSON")) };
        let address = config.get("address").and_then(Value::as_str);
        Ok(Self { address: address.ok_or(Invalid::field("address", "missing"))?.to_owned() })
    }
}

fn unknown(plugin_name: &str, config: Value) -> CertificateProvider {
    CertificateProvider::Unknown { plugin_name: plugin_name.into(), config }
}

fn bootstrap(providers: impl IntoIterator<Item = (&'static str, CertificateProvider)>) -> Arc<Bootstrap> {
    let builder = Bootstrap::builder().server(Server::new("127.0.0.1:1").insecure());
    let builder = providers
        .into_iter()
        .fold(builder, |builder, (instance, provider)| builder.certificate_provider(instance, provider));
    Arc::new(builder.build().unwrap())
}

#[test]
fn a_registered_plugin_has_its_configuration_parsed_and_others_stay() {
    let files = CertificateProvider::FileWatcher(FileWatcherConfig::roots("ca.pem"));
    let before = bootstrap([
        ("ours", unknown("vault", json!({"address": "https://v"}))),
        ("theirs", unknown("other", json!({"address": 1}))),
        ("files", files.clone()),
    ]);
    let after = before
        .clone()
        .plug(&|name, config| {
            Registry::new().with_certificate_provider::<Vault>().parse_certificate_provider(name, config)
        })
        .unwrap();
    let providers = after.certificate_providers();
    let vault = Custom::new(Vault { address: "https://v".into() });
    assert_eq!(providers["ours"], CertificateProvider::Custom(vault));
    assert!(providers["ours"].is_known() && providers["ours"].plugin_name() == "vault");
    assert_eq!(providers["theirs"], unknown("other", json!({"address": 1})));
    assert!(!providers["theirs"].is_known() && providers["files"] == files);
    assert!(Arc::ptr_eq(
        &before,
        &before
            .clone()
            .plug(&|name, config| Registry::new().parse_certificate_provider(name, config))
            .unwrap()
    ));
}

#[test]
fn each_configuration_that_a_plugin_cannot_use_is_an_error_with_its_path() {
    let bootstrap = bootstrap([
        ("a", unknown("vault", json!({"address": 1}))),
        ("b", unknown("vault", Value::Null)),
        ("c", unknown("vault", json!("text"))),
        ("d", unknown("vault", json!({"address": "https://v"}))),
    ]);
    let error = bootstrap
        .plug(&|name, config| {
            Registry::new().with_certificate_provider::<Vault>().parse_certificate_provider(name, config)
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "certificate_providers[\"a\"].config.address: missing; \
         certificate_providers[\"b\"].config.address: missing; \
         certificate_providers[\"c\"].config: expected an object"
    );
}
