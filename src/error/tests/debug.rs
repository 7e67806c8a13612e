//! The output of `main` for a returned error: the `Debug` form of each public error type.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use regex::Regex;

use super::*;
use crate::{
    balance::{InvalidLoadReport, PickError},
    channel::{ChannelError, ChannelState, NotReadyError},
    client::{BuildError, NotAppliedError},
    config::{Bootstrap, ConfigError, Metadata, ServerUri, TargetError, UnknownAuthority, ValidationError},
    control_plane::{ServerTls, session::Misuse},
    name::ResourceName,
    orca::{Metric, ServerMetrics},
    resolve::Snapshot,
    resource::{http_filter::FilterError, tls::MaterialError},
    server::ServerError,
    testing::TestControlPlane,
};

/// Returns the output for an error that `?` has converted to the result of `main`.
fn printed(error: impl Error + 'static) -> String {
    let result: Result<(), Box<dyn Error>> = Err(error.into());
    result.map_err(|error| format!("Error: {error:?}")).unwrap_err()
}

/// One error of each public type.
async fn errors() -> Vec<String> {
    let invalid = Invalid::field("lb_policy", "unsupported");
    let unknown = UnknownAuthority { authority: "a".into() };
    let empty = ValidationError::new("node.id", "empty");
    let control_plane = TestControlPlane::start().await.with_timeout(Duration::ZERO);
    vec![
        printed(Bootstrap::from_json(r#"{ "node": 1 }"#).unwrap_err()),
        printed(BuildError::Bootstrap(ConfigError::new(vec![empty.clone()]))),
        printed(ChannelError::Bootstrap {
            target: "xds:///shop".to_owned(),
            error: Bootstrap::from_json("").unwrap_err(),
        }),
        printed(ConfigError::new(vec![empty, ValidationError::new("", "too\nlong")])),
        printed(FilterError::new(Code::Aborted, "too\nlate")),
        printed(invalid.clone().at_index("clusters", 1)),
        printed(InvalidLoadReport),
        printed(Metadata::default().with_entry("a b", "x").unwrap_err()),
        printed(ServerMetrics::new().set(Metric::MemoryUtilization, 2.0).unwrap_err()),
        printed("xds:///shop".parse::<ServerUri>().unwrap_err()),
        printed(Misuse::NoTypeUrl),
        printed(PickError::Dropped("cluster a: dropped\nby b".into())),
        printed(MaterialError::new("identity: the key is not\nfor the certificate")),
        printed(ServerError::NoListener),
        printed(ServerTls::from_files("/none.pem", "/none.key", None).unwrap_err()),
        printed(Snapshot::builder("http://shop").build(Instant::now()).unwrap_err()),
        printed(ResourceName::parse("xdstp:shop").unwrap_err()),
        printed(control_plane.expect_clients(1).await.unwrap_err()),
        printed(NotAppliedError::new("xds:///shop", Duration::from_secs(5), "endpoints of \"new\nest\"")),
        printed(NotReadyError::new("xds:///shop", ChannelState::TransientFailure, Some("too\nlate".into()))),
        printed(TargetError::UnknownAuthority { target: "xds://a/shop".into(), error: unknown.clone() }),
        printed(unknown),
        printed(WatchError::rejected(about(), invalid)),
    ]
}

#[tokio::test]
async fn main_prints_the_message_of_each_public_error() {
    let expected = [
        "BootstrapError(bootstrap: xds_servers: missing; node: expected an object, found a number)",
        "BuildError(bootstrap: node.id: empty)",
        "ChannelError(the channel to xds:///shop was given no bootstrap and no client, and cannot use the environment: bootstrap: cannot be \
         read: it is empty)",
        "ConfigError(node.id: empty; too\\nlong)",
        "FilterError(ABORTED: too\\nlate)",
        "Invalid(clusters[1].lb_policy: unsupported)",
        "InvalidLoadReport(the load report of the endpoint is not a message xds.data.orca.v3.OrcaLoadReport)",
        "InvalidMetadata(metadata \"a b\": key must consist of letters, digits and `_`, `-`, `.`)",
        "InvalidMetric(MemoryUtilization must be from 0 to 1, is 2)",
        "InvalidUri(\"xds:///shop\": not supported: a management server cannot be found through xDS itself)",
        "Misuse(type_url: missing on an aggregated stream)",
        "PickError(cluster a: dropped\\nby b)",
        "MaterialError(identity: the key is not\\nfor the certificate)",
        "ServerError(no listener: set `listen` or `listener`)",
        "ServerTlsError(certificate_file /none.pem: No such file or directory (os error 2))",
        "SnapshotError(target \"http://shop\": does not start with `xds:`)",
        "NameError(resource name \"xdstp:shop\": scheme at byte 0: does not start with `xdstp://`)",
        "ExpectTimeout(no moment with 1 open streams within 0ns: 0 streams are open)",
        "NotAppliedError(the accepted configuration of xds:///shop is not in use after 5s: endpoints of \"new\\nest\")",
        "NotReadyError(the channel to xds:///shop is not ready: TRANSIENT_FAILURE: too\\nlate)",
        "TargetError(target \"xds://a/shop\": authority \"a\" is not found in the bootstrap)",
        "UnknownAuthority(authority \"a\" is not found in the bootstrap)",
        "WatchError(INVALID_ARGUMENT: Cluster \"shop\": lb_policy: unsupported [node id: n1])",
    ];
    assert_eq!(errors().await, expected.map(|error| format!("Error: {error}")));
}

/// Each new public error type must be in the list above.
#[tokio::test]
async fn all_public_errors_are_among_those_that_main_is_tested_with() {
    let errors = errors().await;
    let type_of = |text: &str| Some(text.strip_prefix("Error: ")?.split_once('(')?.0.to_owned());
    let tested: BTreeSet<_> = errors.iter().filter_map(|text| type_of(text)).collect();
    assert_eq!(tested, public_errors());
}

/// The public types that implement `Error`, manually or derived.
fn public_errors() -> BTreeSet<String> {
    let by_hand = Regex::new(r"\bError for (\w+)").unwrap();
    let derived = Regex::new(
        r"#\[derive\([^)]*\bError\b[^)]*\)\]\n(?:(?:#\[| |\)\])[^\n]*\n)*pub (?:struct|enum) (\w+)",
    )
    .unwrap();
    let public = Regex::new(r"(?m)^pub (?:struct|enum) (\w+)").unwrap();
    let (mut errors, mut public_types) = (BTreeSet::new(), BTreeSet::new());
    for path in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let text = fs::read_to_string(path).unwrap();
        let names =
            |regex: &Regex| regex.captures_iter(&text).map(|found| found[1].to_owned()).collect::<Vec<_>>();
        errors.extend(names(&by_hand).into_iter().chain(names(&derived)));
        public_types.extend(names(&public));
    }
    &errors & &public_types
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}
