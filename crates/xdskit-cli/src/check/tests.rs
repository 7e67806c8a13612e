use std::{collections::BTreeMap, fs, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use serde_json::{Value, json};
use xdskit::pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any};

use super::*;

/// The arguments of a command line.
fn args(line: &[&str]) -> CheckArgs {
    CheckArgs::try_parse_from([&["check"], line].concat()).expect("it is well-formed")
}

/// What is found in a file of this crate's tests, with more arguments.
fn check_file(name: &str, more: &[&str]) -> Checked {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check").join(name);
    let path = path.to_str().expect("it is text");
    check(&args(&[&[path], more].concat()), None)
}

/// What is found in a document, with more arguments.
fn check_document(name: &str, document: &[u8], more: &[&str]) -> Checked {
    let folder = tempfile::tempdir().expect("there is a place for files");
    let path = folder.path().join(name);
    fs::write(&path, document).expect("the folder is there");
    check(&args(&[&[path.to_str().expect("it is text")], more].concat()), None)
}

/// The findings as text, without notes.
fn shown(checked: &Checked) -> Vec<String> {
    let serious = checked.findings.iter().filter(|finding| finding.severity < Severity::Note);
    let text = |finding: &Finding| {
        let line = finding.position.map(|(line, _)| line.to_string()).unwrap_or_default();
        let Finding { rule, path, message, .. } = finding;
        format!("{line} {} {path}: {message}", rule.id())
    };
    serious.map(text).collect()
}

/// Each broken file, the line that is wrong, the rule, and a part of the message. Nothing else is found in it.
const BROKEN: [(&str, &str, &str, &str); 25] = [
    ("syntax.yaml", "4", "unreadable", ""),
    ("syntax.json", "5", "unreadable", "expected `,` or `}`"),
    ("merge-key.yaml", "5", "unreadable", "merge keys"),
    ("value-type.json", "7", "malformed", "number"),
    ("unknown-field.yaml", "6", "unknown-field", "lb_polici: the client does not know the field"),
    ("no-source.yaml", "6", "rejected", "eds_cluster_config: must be set"),
    ("static-cluster.yaml", "4", "rejected", "STATIC is not supported"),
    ("no-cluster.yaml", "19", "dangling-reference", "there is no cluster \"shpo\""),
    ("no-routes.json", "6", "dangling-reference", "there is no route \"shop-routes\""),
    ("no-assignment.yaml", "7", "dangling-reference", "there is no endpoints \"shop.eu\""),
    ("cycle.yaml", "9", "aggregate-cycle", "cycle"),
    ("unreachable-route.yaml", "9", "unreachable-route", "routes[0] (prefix \"/cart\")"),
    ("duplicate-domain.yaml", "10", "duplicate-domain", "\"one\" has \"shop.example\" already"),
    ("zero-weights.yaml", "10", "rejected", "weight"),
    ("regex.yaml", "9", "rejected", "safe_regex"),
    ("no-weight.yaml", "7", "left-out", "no load_balancing_weight"),
    ("unhealthy.yaml", "3", "no-endpoints", "UNAVAILABLE"),
    ("priority.yaml", "5", "rejected", "no priority 0"),
    ("no-address.yaml", "8", "rejected", "address"),
    ("filter-name.yaml", "14", "unknown-filter", "\"faults\""),
    ("twice.yaml", "7", "duplicate-resource", "file 1, line 3"),
    ("target.yaml", "7", "no-virtual-host", "xds:///shop.example"),
    ("no-source.txtpb", "13", "rejected", "STRICT_DNS"),
    ("dump.json", "7", "rejected", "load_assignment: must be set"),
    ("status.json", "3", "rejected", "neither api_listener nor address"),
];

#[test]
fn each_broken_file_has_one_finding_with_the_line_that_is_wrong() {
    let mut wrong = Vec::new();
    for (name, line, rule, part) in BROKEN {
        let found = shown(&check_file(&format!("broken/{name}"), &[]));
        let expected = format!("{line} {rule} ");
        if !matches!(&*found, [one] if one.starts_with(&expected) && one.contains(part)) {
            wrong.push(format!("{name}: {found:#?} is not {expected:?} with {part:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_provider_is_missing_only_in_a_bootstrap() {
    assert_eq!(shown(&check_file("broken/certificate.yaml", &[])), Vec::<String>::new());
    let bootstrap =
        "{\"xds_servers\": [{\"server_uri\": \"a:1\", \"channel_creds\": [{\"type\": \"insecure\"}]}]}";
    let bootstrap = Bootstrap::from_json(bootstrap).expect("it is valid");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/broken/certificate.yaml");
    let found = shown(&check(&args(&[path.to_str().expect("it is text")]), Some(&bootstrap)));
    assert!(found.len() == 1 && found[0].starts_with("12 rejected "), "{found:?}");
}

/// The resources of a recording as a response, as a server sends them.
fn recorded(name: &str) -> (Vec<u8>, BTreeMap<String, String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/dumps");
    let text = fs::read_to_string(folder.join(name).with_extension("json")).expect("it was recorded");
    let dump: Value = serde_json::from_str(&text).expect("it was recorded so");
    let resources = dump["resources"].as_array().expect("a list").iter().map(|sent| {
        let value = BASE64_STANDARD.decode(sent["value"].as_str().expect("base64")).expect("base64");
        Any { type_url: sent["type_url"].as_str().expect("a text").to_owned(), value: value.into() }
    });
    let response = DiscoveryResponse { resources: resources.collect(), ..Default::default() };
    let verdicts = fs::read_to_string(folder.join(name).with_extension("verdicts")).expect("it was recorded");
    let verdicts = verdicts.lines().map(|line| {
        // Names have colons, but no spaces.
        let (resource, verdict) = line.split_once(": ").expect("a verdict");
        (resource.to_owned(), verdict.to_owned())
    });
    (response.encode_to_vec(), verdicts.collect())
}

/// What is said of each rejected resource, by type and name as in the recorded verdicts.
fn rejected(checked: &Checked) -> BTreeMap<String, String> {
    let rejected = checked.findings.iter().filter(|finding| finding.rule == Rule::Rejected);
    let verdict = |finding: &Finding| {
        let (kind, name) = finding.resource.as_ref().expect("it is of a resource");
        let kind = match *kind {
            "listener" => "Listener",
            "route" => "RouteConfiguration",
            "cluster" => "Cluster",
            "endpoints" => "ClusterLoadAssignment",
            other => other,
        };
        let dot = if finding.path.is_empty() { "" } else { ": " };
        let reason = finding.message.strip_prefix("gRPC rejects it: ").unwrap_or(&finding.message);
        (format!("{kind} {name}"), format!("{}{dot}{reason}", finding.path))
    };
    rejected.map(verdict).collect()
}

const RECORDED: [&str; 6] = [
    "istio/sidecar",
    "istio/router",
    "istio/grpc",
    "consul/sidecar",
    "consul/transparent",
    "envoy-gateway/gateway",
];

#[test]
fn what_servers_send_has_the_recorded_verdicts() {
    for name in RECORDED {
        let (response, verdicts) = recorded(name);
        let expected: BTreeMap<_, _> = verdicts
            .iter()
            .filter(|(_, verdict)| *verdict != "accepted")
            .map(|(one, why)| (one.clone(), why.clone()))
            .collect();
        for against in ["xdskit", "observe"] {
            let checked = check_document("dump.pb", &response, &["--against", against]);
            assert_eq!(checked.resources, verdicts.len(), "{name}");
            assert_eq!(rejected(&checked), expected, "{name} against {against}");
            let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
            let errors: Vec<_> = errors.filter(|finding| finding.rule != Rule::Rejected).collect();
            assert!(errors.is_empty(), "{name}: {errors:?}");
        }
    }
}

/// The documentation of the recordings: gRPC's clients reject `path_separated_prefix`, which this crate accepts.
#[test]
fn grpcs_clients_reject_more_where_that_is_known() {
    let (response, _) = recorded("envoy-gateway/gateway");
    let route = |against: &str| {
        let checked = check_document("dump.pb", &response, &["--against", against]);
        rejected(&checked).remove("RouteConfiguration shop/shop/http")
    };
    assert_eq!(route("xdskit"), None);
    assert!(route("grpc").expect("it is rejected").contains("path specifier"));
}

#[test]
fn the_same_resources_have_the_same_findings_in_each_format() {
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/broken/no-source.txtpb"));
    let text = text.expect("it is there");
    let read = xdskit::tool_support::read_text(&text).expect("it is a response");
    let without_lines = |checked: &Checked| -> Vec<_> {
        let findings = checked.findings.iter();
        let mut found: Vec<_> =
            findings.map(|one| (one.rule, one.path.clone(), one.message.clone())).collect();
        found.sort();
        found
    };
    let expected = without_lines(&check_document("a.txtpb", &text, &[]));
    assert_eq!(expected.len(), 2, "the rejected cluster and the missing endpoints");
    assert_eq!(without_lines(&check_document("no-extension", &read.message, &[])), expected);
    assert_eq!(without_lines(&check_document("no-extension", &text, &[])), expected);
    let response = DiscoveryResponse::decode(read.message).expect("a response");
    let one = response.resources[1].encode_to_vec();
    assert_eq!(rejected(&check_document("one.pb", &one, &[])).len(), 1, "a resource alone");
}

#[test]
fn listeners_are_of_the_side_that_is_checked() {
    let listener = "{\"@type\": \"type.googleapis.com/envoy.config.listener.v3.Listener\", \"name\": \"a\"}";
    let rules = |more: &[&str]| -> Vec<_> {
        let checked = check_document("a.json", listener.as_bytes(), more);
        checked.findings.iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(rules(&[]), [Rule::Rejected]);
    assert_eq!(rules(&["--server"]), [Rule::Rejected]);
    assert_eq!(rules(&["--client"]), [Rule::Rejected, Rule::WrongSide]);
}

/// The rules and paths of what is found in a list of resources, without those of single resources.
fn found_across(resources: &Value) -> Vec<String> {
    let checked = check_document("a.json", resources.to_string().as_bytes(), &[]);
    let rules = [Rule::DanglingReference, Rule::AggregateCycle, Rule::Unreferenced];
    let findings = checked.findings.iter().filter(|finding| rules.contains(&finding.rule));
    let text = |finding: &Finding| {
        let name = finding.resource.as_ref().map(|(_, name)| name.as_str()).unwrap_or_default();
        format!("{} {name} {}", finding.rule.id(), finding.path)
    };
    let mut found: Vec<_> = findings.map(text).collect();
    found.sort();
    found
}

fn typed(message: &str, mut fields: Value) -> Value {
    fields["@type"] = json!(format!("type.googleapis.com/envoy.{message}"));
    fields
}

#[test]
fn references_of_each_kind_are_followed() {
    let filter = |name: &str, default: bool| {
        let source = json!({"config_source": {"ads": {}}, "type_urls": ["a/b"]});
        let mut filter = json!({"name": name, "config_discovery": source});
        if default {
            let fault = typed("extensions.filters.http.fault.v3.HTTPFault", json!({}));
            filter["config_discovery"]["default_config"] = fault;
        }
        filter
    };
    let filters = [filter("one", false), filter("two", true)];
    let manager = json!({"rds": {"route_config_name": "routes"}, "http_filters": filters});
    let manager =
        typed("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", manager);
    let tcp = json!({"stat_prefix": "x", "cluster": "db"});
    let tcp = typed("extensions.filters.network.tcp_proxy.v3.TcpProxy", tcp);
    let chains = json!([{"filters": [{"name": "tcp", "typed_config": tcp}]}]);
    let children = json!({"clusters": ["stock", "gone"]});
    let children = typed("extensions.clusters.aggregate.v3.ClusterConfig", children);
    let sds = json!({"common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "key"}]}});
    let sds = typed("extensions.transport_sockets.tls.v3.UpstreamTlsContext", sds);
    let socket = json!({"name": "tls", "typed_config": sds});
    let scope = json!({"name": "scope", "route_configuration_name": "other"});
    let api = json!({"name": "api", "api_listener": {"api_listener": manager}});
    let all = json!({"name": "all", "cluster_type": {"typed_config": children}});
    let resources = json!([
        typed("config.listener.v3.Listener", api),
        typed("config.listener.v3.Listener", json!({"name": "tcp", "filter_chains": chains})),
        typed("config.core.v3.TypedExtensionConfig", json!({"name": "three"})),
        typed("config.route.v3.ScopedRouteConfiguration", scope),
        typed("config.route.v3.RouteConfiguration", json!({"name": "routes"})),
        typed("config.cluster.v3.Cluster", all),
        typed(
            "config.cluster.v3.Cluster",
            json!({"name": "stock", "type": "EDS", "transport_socket": socket})
        ),
        typed("config.endpoint.v3.ClusterLoadAssignment", json!({"cluster_name": "stock"})),
        typed("extensions.transport_sockets.tls.v3.Secret", json!({"name": "other-key"})),
    ]);
    let secret = "common_tls_context.tls_certificate_sds_secret_configs[0].name";
    let expected = [
        "dangling-reference all cluster_type.typed_config.clusters[1]".to_owned(),
        "dangling-reference api api_listener.api_listener.http_filters[0].name".to_owned(),
        "dangling-reference scope route_configuration_name".to_owned(),
        format!("dangling-reference stock transport_socket.typed_config.{secret}"),
        "dangling-reference tcp filter_chains[0].filters[0].typed_config.cluster".to_owned(),
        "unreferenced all ".to_owned(),
        "unreferenced three ".to_owned(),
    ];
    assert_eq!(found_across(&resources), expected);
}

#[test]
fn cycles_of_aggregates_are_reported_where_they_are() {
    let cluster = |name: &str, children: &[&str]| {
        let children = typed("extensions.clusters.aggregate.v3.ClusterConfig", json!({"clusters": children}));
        let of = json!({"name": name, "cluster_type": {"typed_config": children}});
        typed("config.cluster.v3.Cluster", of)
    };
    let chain =
        json!([cluster("a", &["b", "c"]), cluster("b", &["c"]), cluster("c", &["d"]), cluster("d", &[])]);
    assert_eq!(found_across(&chain), Vec::<String>::new());
    let cycle =
        json!([cluster("a", &["b"]), cluster("b", &["d", "c"]), cluster("c", &["b"]), cluster("d", &[])]);
    let path = "cluster_type.typed_config.clusters";
    let expected = ["a", "b", "c"].map(|name| {
        let index = usize::from(name == "b");
        format!("aggregate-cycle {name} {path}[{index}]")
    });
    assert_eq!(found_across(&cycle), expected);
}

#[test]
fn a_condition_that_is_not_known_makes_no_route_unreachable() {
    let rules = |condition: &str| -> Vec<_> {
        let routes = format!(
            "name: a\n\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nvirtual_hosts:\n\
             - name: a\n  domains: [a]\n  routes:\n  - {{match: {{prefix: /{condition}}}, route: {{cluster: a}}}}\n\
             \u{20} - {{match: {{prefix: /b}}, route: {{cluster: b}}}}\n"
        );
        let checked = check_document("a.yaml", routes.as_bytes(), &[]);
        let ids = checked.findings.iter().map(|finding| finding.rule.id());
        ids.filter(|id| *id != "dangling-reference").collect()
    };
    assert_eq!(rules(""), ["unreachable-route"]);
    assert_eq!(rules(", filter_state: [{key: x}]"), ["unknown-field"]);
    // A client leaves out a route with this, so that it covers nothing.
    assert_eq!(rules(", query_parameters: [{name: q}]"), ["left-out"]);
}

#[test]
fn the_exit_code_follows_from_the_severest_finding() {
    let with = |rule: Rule| [Finding::new(Rule::Unreferenced, 0, ""), Finding::new(rule, 0, "")];
    let is_missing = |rule, fail_on| matches!(outcome(&with(rule), fail_on), Err(Failure::Missing));
    assert!(is_missing(Rule::Rejected, FailOn::Error));
    assert!(!is_missing(Rule::LeftOut, FailOn::Error));
    assert!(is_missing(Rule::LeftOut, FailOn::Warning));
    assert!(!is_missing(Rule::Unreferenced, FailOn::Warning));
    assert!(is_missing(Rule::Unreferenced, FailOn::Note));
    assert!(matches!(outcome(&[], FailOn::Note), Ok(())));
    assert!(matches!(outcome(&with(Rule::Unreadable), FailOn::Error), Err(Failure::Usage(_))));
}

#[test]
fn hostile_input_is_a_clear_error() {
    let deep_json = "[".repeat(1_000_000);
    let deep_yaml = "a:\n".to_owned() + &"- ".repeat(10_000) + "x";
    let deep_text = "a {".repeat(100_000);
    let large = vec![b' '; (64 << 20) + 1];
    for (name, document, part) in [
        ("a.json", deep_json.as_bytes(), "recursion limit"),
        ("a.yaml", deep_yaml.as_bytes(), "nested too deep"),
        ("a.txtpb", deep_text.as_bytes(), "nested too deep"),
        ("a.json", &large, "larger than 64 MiB"),
        ("a.yaml", b"a: \xff\xfe", "not UTF-8"),
        ("a.json", b"", "EOF"),
        ("a.json", b"7", "must be an object or a list"),
        ("a.json", b"{}", "has no resources"),
        ("a.yaml", b"x: 1\n---\ny: 2", "a second document"),
        ("a.pb", b"\x00\x01\x02", "neither a DiscoveryResponse"),
        ("a.pb", b"", "neither a DiscoveryResponse"),
    ] {
        let checked = check_document(name, document, &[]);
        let [finding] = &*checked.findings else { panic!("{name}: {:?}", checked.findings) };
        assert_eq!(finding.rule, Rule::Unreadable, "{name}");
        assert!(finding.message.contains(part), "{:?} of {name} lacks {part:?}", finding.message);
    }
    let missing = check(&args(&["/no/such/file.json"]), None);
    assert_eq!(missing.findings[0].rule, Rule::Unreadable);
}

#[test]
fn all_files_together_have_a_largest_size() {
    let folder = tempfile::tempdir().expect("there is a place for files");
    let path = folder.path().join("a.json");
    // A file of zeros without blocks, which is no JSON.
    fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("the folder is there");
    let path = path.to_str().expect("it is text");
    let checked = check(&args(&[path; 5]), None);
    let last = checked.findings.last().expect("each file has one");
    assert_eq!((checked.findings.len(), last.file), (5, 4));
    assert_eq!(last.message, "all files together are larger than 256 MiB");
}

#[test]
fn a_file_has_a_largest_number_of_resources() {
    let runtime = "{\"@type\": \"type.googleapis.com/envoy.service.runtime.v3.Runtime\"}";
    let document = format!("[{}]", vec![runtime; 100_001].join(","));
    let checked = check_document("a.json", document.as_bytes(), &[]);
    assert_eq!(checked.resources, 100_000);
    let unreadable: Vec<_> = checked.findings.iter().filter(|one| one.rule == Rule::Unreadable).collect();
    assert!(unreadable.len() == 1 && unreadable[0].message.contains("1 more resources"), "{unreadable:?}");
}

#[test]
fn names_with_control_characters_control_no_terminal() {
    let cluster = "{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"\\u001b[2J\\u202e\\n\"}";
    let Checked { files, resources, findings } = check_document("a.json", cluster.as_bytes(), &[]);
    for form in [Form::Text, Form::Json, Form::Sarif] {
        let text = Report { files: &files, resources, findings: &findings }.show(form);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn many_resources_are_checked_in_little_time() {
    let route = |index: usize| {
        format!("{{\"match\": {{\"path\": \"/{index}\"}}, \"route\": {{\"cluster\": \"c{index}\"}}}}")
    };
    let routes: Vec<_> = (0..10_000).map(route).collect();
    let document = format!(
        "{{\"@type\": \"type.googleapis.com/envoy.config.route.v3.RouteConfiguration\", \"name\": \"a\", \
         \"virtual_hosts\": [{{\"name\": \"a\", \"domains\": [\"*\"], \"routes\": [{}]}}]}}",
        routes.join(",\n")
    );
    let checked = check_document("a.json", document.as_bytes(), &[]);
    assert_eq!(shown(&checked), Vec::<String>::new());
    assert_eq!(checked.findings.len(), 1, "clusters are elsewhere");
}
