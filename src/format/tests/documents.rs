use super::*;

#[test]
fn the_format_goes_by_the_extension_in_any_case() {
    for (path, format) in [
        ("a/b.pb", Format::Binary),
        ("b.PB_TEXT", Format::Text),
        ("b.yaml", Format::Yaml),
        ("b.Yml", Format::Yaml),
        ("b.json", Format::Json),
        ("b.txt", Format::Json),
        ("yaml", Format::Json),
        ("a.pb/b", Format::Json),
    ] {
        assert_eq!(Format::from_path(Path::new(path)), format, "{path}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped_in_each_format_of_text() {
    for (format, document) in [
        (Format::Json, "\u{feff}{\"version_info\": \"7\"}"),
        (Format::Yaml, "\u{feff}version_info: '7'"),
        (Format::Text, "\u{feff}version_info: '7'"),
    ] {
        assert_eq!(response(document, format).version_info, "7", "{format:?}");
    }
    let nothing = read("\u{feff}".as_bytes(), Format::Json).unwrap_err();
    assert_eq!(nothing.to_string(), "there is nothing in it");
}

#[test]
fn unknown_fields_and_values_are_passed_over_with_a_warning_that_names_them() {
    let json = json!({
        "version_info": "1", "colour": 1,
        "resources": [{"@type": url(CLUSTER), "name": "shop", "alt_stat_nome": "x", "lb_policy": "BY_MOON",
            "common_lb_config": {"moon": {}}}],
    });
    let read = read(json.to_string().as_bytes(), Format::Json).unwrap();
    let expected = [
        "colour: unknown field, ignored",
        "resources[0].alt_stat_nome: unknown field, ignored",
        "resources[0].lb_policy: \"BY_MOON\" is not a value of envoy.config.cluster.v3.Cluster.LbPolicy",
        "resources[0].common_lb_config.moon: unknown field, ignored",
    ];
    assert_eq!(read.warnings, expected);
    let cluster = only_cluster(&DiscoveryResponse::decode(read.message).unwrap());
    assert_eq!(cluster.name, "shop");
    assert!(cluster.lb_policy < 0 && LbPolicy::try_from(cluster.lb_policy).is_err());
}

#[test]
fn errors_have_a_place_and_a_reason() {
    let clusters = |cluster: Value| json!({"resources": [{"@type": url(CLUSTER), "name": "a"}, cluster]});
    let cluster = |rest: Value| {
        let mut cluster = rest;
        cluster["@type"] = url(CLUSTER).into();
        error(RESPONSE, &clusters(cluster))
    };
    assert_eq!(cluster(json!({"name": 1})), "resources[1].name: must be a text in quotes, not the number 1");
    assert_eq!(
        cluster(json!({"outlier_detection": {"interval": "5"}})),
        "resources[1].outlier_detection.interval: must be a duration such as \"1.5s\", not \"5\""
    );
    assert_eq!(
        cluster(json!({"type": "EDS", "clusterType": {"name": "x"}})),
        "resources[1].type: only one of it and clusterType can be set"
    );
    assert_eq!(
        cluster(json!({"load_assignment": []})),
        "resources[1].load_assignment: must be an object, not a list"
    );
    assert_eq!(error(RESPONSE, &json!({"resources": {}})), "resources: must be a list, not an object");
    assert_eq!(error(RESPONSE, &json!({"resources": [null]})), "resources[0]: must be an object, not null");
    let metadata = json!({"metadata": {"filter_metadata": {"envoy.lb": 1}}});
    assert_eq!(
        cluster(metadata),
        "resources[1].metadata.filter_metadata[\"envoy.lb\"]: must be an object, not the number 1"
    );
    let bad = read(b"{\"resources\":\n [,]}", Format::Json).unwrap_err().to_string();
    assert_eq!(bad, "line 2, column 3: expected value");
    let truncated = read(b"{\"resources\":\n", Format::Json).unwrap_err().to_string();
    assert_eq!(truncated, "line 2, column 1: EOF while parsing a value");
}

#[test]
fn one_mesh_is_the_same_in_json_yaml_text_and_binary() {
    let json = json!({"version_info": "3", "resources": [{
        "@type": url(CLUSTER), "name": "shop", "type": "EDS", "outlier_detection": {"interval": "0.250s"},
        "eds_cluster_config": {"eds_config": {"ads": {}}, "service_name": "x"},
        "circuit_breakers": {"thresholds": [{"max_requests": 5}]},
        "metadata": {"filter_metadata": {"m": {"k": "v"}}},
    }]});
    let yaml = r#"
# Clusters
version_info: "3"
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: shop
  type: EDS
  outlier_detection: {interval: 0.25s}
  eds_cluster_config:
    eds_config: {ads: {}}
    service_name: x
  circuit_breakers:
    thresholds:
    - max_requests: 5
  metadata:
    filter_metadata: {m: {k: v}}
"#;
    let text = r#"
        version_info: "3"  # the third
        resources {
          [type.googleapis.com/envoy.config.cluster.v3.Cluster] {
            name: 'sh' "op", type: EDS;
            outlier_detection { interval < nanos: 250000000 > }
            eds_cluster_config { eds_config: { ads {} } service_name: "\x78" }
            circuit_breakers { thresholds: [{ max_requests { value: 0x5 } }] }
            metadata { filter_metadata { key: "m" value { fields { key: "k" value { string_value: "v" } } } } }
          }
        }
    "#;
    let expected = response(&json.to_string(), Format::Json);
    let cluster = only_cluster(&expected);
    assert_eq!(
        (&*cluster.name, cluster.outlier_detection.unwrap().interval.unwrap().nanos),
        ("shop", 250_000_000)
    );
    assert_eq!(response(yaml, Format::Yaml), expected);
    assert_eq!(response(text, Format::Text), expected);
    let binary = read(&expected.encode_to_vec(), Format::Binary).unwrap();
    assert_eq!(DiscoveryResponse::decode(binary.message).unwrap(), expected);
}

#[test]
fn a_list_collection_stands_alone_as_a_resource() {
    let yaml = "
version: X
resource:
  '@type': type.googleapis.com/envoy.config.listener.v3.ListenerCollection
  entries:
  - inline_entry:
      name: a
      version: '1'
      resource: {'@type': type.googleapis.com/envoy.config.listener.v3.Listener, name: a}
";
    let read = response(yaml, Format::Yaml);
    assert_eq!(read.version_info, "X");
    assert_eq!(read.type_url, url("envoy.config.listener.v3.ListenerCollection"));
    let [wrapper] = &*read.resources else { panic!("{read:?}") };
    assert_eq!(wrapper.type_url, url("envoy.service.discovery.v3.Resource"));
    let resource = Resource::decode(wrapper.value.clone()).unwrap();
    assert_eq!(resource.resource.unwrap().type_url, read.type_url);
    let other = json!({"resource": {"@type": url(CLUSTER), "name": "a"}}).to_string();
    let error = super::read(other.as_bytes(), Format::Json).unwrap_err().to_string();
    assert!(error.ends_with("which is not a list collection"), "{error}");
}

#[test]
fn d9_a_list_collection_without_entries_and_with_an_unknown_field_is_an_error() {
    let list = url("envoy.config.listener.v3.ListenerCollection");
    let wrong = json!({"version": "1", "resource": {"@type": list, "resources": [{"name": "a"}]}});
    let reason = "a list collection without `entries`, but with the unknown field \"resources\", would remove all members";
    let error = read(wrong.to_string().as_bytes(), Format::Json).unwrap_err().to_string();
    assert!(error.contains("resource") && error.contains(reason), "{error}");
    let listed = json!({"type_url": list, "resources": [{"@type": list, "resources": []}]});
    let error = read(listed.to_string().as_bytes(), Format::Json).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    let text = "version: \"1\" resource { [type.googleapis.com/envoy.config.listener.v3.ListenerCollection] { colour: 1 } }";
    let error = read(text.as_bytes(), Format::Text).unwrap_err().to_string();
    assert!(error.contains("without `entries` would remove all members; "), "{error}");
    // An empty list is one, and beside entries unknown fields are skipped.
    let empty = json!({"version": "1", "resource": {"@type": list, "entries": []}});
    assert!(read(empty.to_string().as_bytes(), Format::Json).is_ok());
    let entry = json!({"locator": {"id": "x", "authority": "a", "resource_type": "T"}});
    let more = json!({"version": "1", "resource": {"@type": list, "entries": [entry], "colour": 1}});
    assert_eq!(read(more.to_string().as_bytes(), Format::Json).unwrap().warnings.len(), 1);
}

#[test]
fn an_empty_document_is_an_error_and_no_empty_response() {
    for (document, format) in [
        ("", Format::Json),
        (" \n", Format::Json),
        ("{}", Format::Json),
        ("null", Format::Json),
        ("[]", Format::Json),
        ("{\"colour\": 1}", Format::Json),
        ("{\"resources\": null}", Format::Json),
        ("", Format::Yaml),
        ("---\n", Format::Yaml),
        ("# nothing\n", Format::Yaml),
        ("resources", Format::Yaml),
        ("resources:\n", Format::Yaml),
        ("", Format::Text),
        ("# nothing", Format::Text),
        ("colour: 1", Format::Text),
        ("", Format::Binary),
        ("resources: []", Format::Binary),
        ("{\"resources\": []}", Format::Binary),
        ("\x1a\x01x", Format::Binary),
        ("\x30\x01", Format::Binary),
    ] {
        assert!(read(document.as_bytes(), format).is_err(), "{document:?} {format:?}");
    }
    assert!(response("{\"resources\": []}", Format::Json).resources.is_empty());
    assert_eq!(response("version_info: a", Format::Yaml).version_info, "a");
}

#[test]
fn what_is_cut_off_is_no_response() {
    let resources = vec![Any {
        type_url: url(CLUSTER),
        value: Cluster { name: "a".into(), ..Default::default() }.encode_to_vec().into(),
    }];
    let whole =
        DiscoveryResponse { version_info: "1".into(), resources, ..Default::default() }.encode_to_vec();
    // Cut off after the version, it is a complete document.
    for length in (0..3).chain(4..whole.len()) {
        assert!(read(&whole[..length], Format::Binary).is_err(), "{length}");
    }
    assert!(read(&whole, Format::Binary).is_ok());
    let json = encode_json(RESPONSE, &whole).unwrap();
    for length in 0..json.len() {
        assert!(read(&json.as_bytes()[..length], Format::Json).is_err(), "{length}");
    }
}

#[test]
fn depth_is_limited_everywhere() {
    for depth in [90, 200, 100_000] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let json = format!("{{\"version_info\": \"1\", \"x\": {nested}}}");
        for format in [Format::Json, Format::Yaml] {
            assert_eq!(read(json.as_bytes(), format).is_ok(), depth < 100, "{depth} {format:?}");
        }
        let text = format!("version_info: \"1\" x {} {}", "{ x ".repeat(depth), "}".repeat(depth));
        assert!(read(text.as_bytes(), Format::Text).is_err());
        let text = format!("version_info: \"1\" x {{}} {}x {{}} {}", "x { ".repeat(depth), "}".repeat(depth));
        assert_eq!(read(text.as_bytes(), Format::Text).is_ok(), depth < 100, "{depth}");
    }
    for deep in ["- ", "? ", "a: [", "{a: ", "[", "!!seq [", "&a ["] {
        assert!(read(deep.repeat(100_000).as_bytes(), Format::Yaml).is_err(), "{deep:?}");
    }
    let mut any = Any { type_url: url(CLUSTER), value: Cluster::default().encode_to_vec().into() };
    for _ in 0..1000 {
        any = Any { type_url: url("google.protobuf.Any"), value: any.encode_to_vec().into() };
    }
    let shown = encode_json("google.protobuf.Any", &any.encode_to_vec()).unwrap();
    let read = decode_json("google.protobuf.Any", shown.as_bytes()).unwrap();
    assert_eq!(Any::decode(read.message).unwrap(), any);
}

#[test]
fn yaml_is_of_the_core_schema() {
    let yaml = "
a: [~, null, '', 0x1F, 0o17, -3, +4, 1e2, .5, .inf, true, True, yes, 10.0.0.1, '7', \"x\", !!str 5, 2024-01-01]
b: &b {c: 1}
d: *b
7: {}
";
    let expected = json!({
        "a": [null, null, "", 31, 15, -3, 4, 100.0, 0.5, "Infinity", true, true, "yes", "10.0.0.1", "7", "x", "5", "2024-01-01"],
        "b": {"c": 1}, "d": {"c": 1}, "7": {},
    });
    assert_eq!(yaml::read(yaml).unwrap(), expected);
    for (yaml, why) in [
        ("a: 1\na: 2", "line 2, column 1: the key \"a\" is there twice"),
        ("a: 1\n---\nb: 1", "line 2, column 1: a second document, where one is read"),
        ("a: &a {b: *a}", "line 1, column 11: an alias of what is not there"),
        ("[a]: 1", "line 1, column 1: a key that is a list or an object"),
        ("a: !x 1", "line 1, column 4: unknown tag !x"),
        ("a: {<<: {}}", "line 1, column 5: merge keys are not part of YAML 1.2"),
    ] {
        assert_eq!(yaml::read(yaml).unwrap_err().to_string(), why);
    }
    assert!(yaml::read("a: [1").is_err());
}

#[test]
fn aliases_cannot_make_a_small_text_large() {
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        yaml.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let error = read(yaml.as_bytes(), Format::Yaml).unwrap_err().to_string();
    assert!(error.contains("too much"), "{error}");
}

#[test]
fn errors_of_texts_have_a_line() {
    for (text, why) in [
        ("version_info: 1", "line 1, column 1: version_info must be a text in quotes"),
        ("version_info: 'a'\nversion_info: 'b'", "line 2, column 1: version_info is set twice"),
        ("version_info: 'a", "line 1, column 17: a text without an end"),
        ("version_info 'a'", "line 1, column 14: a colon or a brace is missing"),
        ("resources {", "line 1, column 12: a message without an end"),
        ("version_info: '\\q'", "line 1, column 18: an unknown escape"),
        ("canary: maybe version_info: ''", "line 1, column 1: canary must be true or false, not maybe"),
        ("}", "line 1, column 1: the name of a field is missing"),
    ] {
        assert_eq!(read(text.as_bytes(), Format::Text).unwrap_err().to_string(), why, "{text}");
    }
}

#[test]
fn a_text_keeps_an_any_of_an_unknown_type() {
    let text = "version_info: '1' resources { [acme.io/acme.v1.Thing] { a: 1 } } resources { type_url: 'x/y' value: '\\001' }";
    let read = response(text, Format::Text);
    let [thing, raw] = &*read.resources else { panic!("{read:?}") };
    assert_eq!((&*thing.type_url, &*thing.value), ("acme.io/acme.v1.Thing", &b"\x07 a: 1 "[..]));
    assert_eq!((&*raw.type_url, &*raw.value), ("x/y", &[1][..]));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for format in [Format::Binary, Format::Text, Format::Yaml, Format::Json] {
                let _ = read(&bytes, format);
            }
            let _ = encode_json(RESPONSE, &bytes);
            let _ = encode_json(CLUSTER, &bytes);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z{}\\[\\]<>:;,'\"\\\\x0-9.&*!|# \n-]{0,80}") {
            for format in [Format::Text, Format::Yaml, Format::Json] {
                let _ = read(text.as_bytes(), format);
                let _ = read(format!("version_info: {text}").as_bytes(), format);
            }
        }

        #[test]
        fn what_is_shown_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..60), name: String) {
            let any = Any { type_url: url(&name), value: bytes.into() };
            let response = DiscoveryResponse { version_info: name, resources: vec![any], ..Default::default() };
            let shown = encode_json(RESPONSE, &response.encode_to_vec()).unwrap();
            let read = decode_json(RESPONSE, shown.as_bytes()).unwrap();
            prop_assert_eq!(DiscoveryResponse::decode(read.message).unwrap(), response);
        }
    }
}
