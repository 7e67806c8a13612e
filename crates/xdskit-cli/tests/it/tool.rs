//! The tool `xdskit`, beyond the functions of the examples.

use std::fs;

use serde_json::{Value, json};
use xdskit::{
    control_plane::type_url,
    testing::resources::{cluster, endpoints},
};

use super::{Server, brief, keys, process::Process, walk::serve};

impl Server {
    /// The tool with the bootstrap of this server.
    pub(crate) fn tool(&self, command: &str, args: &[&str]) -> Process {
        let bootstrap = format!("--bootstrap={}", self.bootstrap().display());
        Process::tool([command, &bootstrap].iter().chain(args), &[])
    }
}

#[tokio::test]
async fn once_prints_the_first_complete_state_and_ends() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(cluster("a"));
        tx.set(cluster("b"));
        tx.set(endpoints("a").locality("eu", "a", ["10.0.0.1:80"]));
    });
    let mut watch = server.tool("watch", &["--once", "--json", "endpoints=a", "cluster=*"]);
    let lines = [watch.json().await, watch.json().await, watch.json().await];
    let expected = ["endpoints=a a present", "cluster=* a present", "cluster=* b present"];
    assert_eq!(lines.map(|line| brief(&line)), expected, "in the order of the targets");
    assert_eq!(watch.line().await, None);
    assert_eq!(watch.exit().await.code(), Some(0));
}

#[tokio::test]
async fn once_ends_with_exit_code_1_if_something_is_missing() {
    let server = Server::start().await;
    server.control_plane.set(cluster("a"));
    for (args, lines) in [
        (
            &["cluster=a", "cluster=nope"] as &[_],
            &["cluster=a a present", "cluster=nope nope absent"] as &[_],
        ),
        (&["endpoints=*"], &["endpoints=* * absent"]),
        (&["cluster=x*"], &[]),
        (&["cluster=*", "--filter=b"], &[]),
    ] {
        let options = ["--once", "--json", "--resource-timeout=0.3"];
        let args: Vec<_> = options.iter().chain(args).copied().collect();
        let mut watch = server.tool("watch", &args);
        for expected in lines {
            assert_eq!(brief(&watch.json().await), *expected, "{args:?}");
        }
        assert_eq!(watch.line().await, None, "{args:?}");
        assert_eq!(watch.exit().await.code(), Some(1), "{args:?}");
    }
    server.control_plane.stop().await;
    let mut watch = server.tool("watch", &["--once", "--json", "cluster=a"]);
    assert_eq!(watch.json().await["error"]["code"], "UNAVAILABLE");
    assert_eq!(watch.exit().await.code(), Some(1));
}

#[tokio::test]
async fn once_prints_each_tree_and_reports_whether_it_is_complete() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let mut walk = server.tool("walk", &["--once", "xds:///shop"]);
    let text = walk.text().await;
    assert!(text.starts_with("● xds:///shop  listener shop") && text.contains("● 10.0.0.1:80"), "{text}");
    assert_eq!(walk.exit().await.code(), Some(0));

    let mut walk =
        server.tool("walk", &["--once", "--json", "--resource-timeout=0.3", "xds:///nope", "xds:///shop"]);
    assert_eq!(walk.json().await["error"]["code"], "NOT_FOUND");
    assert_eq!(walk.json().await["target"], "xds:///shop");
    assert_eq!((walk.line().await, walk.exit().await.code()), (None, Some(1)));

    server.control_plane.remove(type_url::CLUSTER, "shop");
    let mut walk = server.tool("walk", &["--once", "--json", "--resource-timeout=0.3", "xds:///shop"]);
    assert_eq!(walk.json().await["clusters"]["shop"]["error"]["code"], "NOT_FOUND");
    assert_eq!(walk.exit().await.code(), Some(1));
}

#[tokio::test]
async fn a_glob_shows_some_of_all() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        for name in ["outbound|80||a", "outbound|8080||b", "inbound|80||a"] {
            tx.set(cluster(name));
        }
    });
    let mut watch = server.tool("watch", &["--json", "cluster=outbound|80|*"]);
    assert_eq!(brief(&watch.json().await), "cluster=outbound|80|* outbound|80||a present");
    server.control_plane.set(cluster("outbound|8080||c"));
    server.control_plane.set(cluster("outbound|80||c"));
    assert_eq!(brief(&watch.json().await), "cluster=outbound|80|* outbound|80||c present");
    server.control_plane.remove(type_url::CLUSTER, "outbound|80||a");
    assert_eq!(brief(&watch.json().await), "cluster=outbound|80|* outbound|80||a absent");

    let filters = ["--filter", "cluster=in*", "--filter", "*|8080||?", "--filter", "listener=*"];
    let args: Vec<_> = ["--json", "--once", "cluster=*"].into_iter().chain(filters).collect();
    let mut watch = server.tool("watch", &args);
    for name in ["inbound|80||a", "outbound|8080||b", "outbound|8080||c"] {
        assert_eq!(watch.json().await["name"], name);
    }
    assert_eq!((watch.line().await, watch.exit().await.code()), (None, Some(0)));
}

#[tokio::test]
async fn the_bootstrap_may_come_from_the_environment() {
    let server = Server::start().await;
    server.control_plane.set(cluster("shop"));
    let path = server.bootstrap().display().to_string();
    let text = fs::read_to_string(server.bootstrap()).unwrap();
    for variable in [("GRPC_XDS_BOOTSTRAP", &*path), ("GRPC_XDS_BOOTSTRAP_CONFIG", &*text)] {
        let mut watch = Process::tool(["watch", "--once", "--json", "cluster=shop"], &[variable]);
        assert_eq!(brief(&watch.json().await), "cluster=shop shop present");
        assert_eq!(watch.exit().await.code(), Some(0));
    }
    // A path on the command line takes precedence.
    let mut watch = Process::tool(
        ["watch", "--bootstrap", &path, "--once", "cluster=shop"],
        &[("GRPC_XDS_BOOTSTRAP", "no/such/file")],
    );
    assert_eq!(watch.exit().await.code(), Some(0));
    let mut watch = Process::tool(["watch", "cluster=shop"], &[("GRPC_XDS_BOOTSTRAP", "no/such/file")]);
    assert_eq!(watch.exit().await.code(), Some(2));
    watch.complaint("no/such/file (from GRPC_XDS_BOOTSTRAP)").await;
}

#[tokio::test]
async fn what_grpc_rejects_is_shown_where_it_is_observed() {
    let server = Server::start().await;
    server.control_plane.update(|tx| {
        tx.set(cluster("bad").edit(|cluster| cluster.eds_cluster_config = None));
        tx.set(cluster("good").eds_service("shop"));
    });
    let mut watch = server.tool("watch", &["--once", "--json", "--observe", "cluster=*"]);
    let [bad, good] = [watch.json().await, watch.json().await];
    assert_eq!(keys(&bad), ["invalid", "name", "resource", "state", "version", "warning", "watch"]);
    assert_eq!(
        (&bad["name"], &bad["state"], &bad["resource"]),
        (&json!("bad"), &json!("present"), &Value::Null)
    );
    assert!(bad["invalid"].as_str().unwrap().contains("eds_cluster_config"), "{bad}");
    assert_eq!((&good["invalid"], &good["resource"]["service_name"]), (&Value::Null, &json!("shop")));
    assert_eq!(watch.exit().await.code(), Some(0));
    assert!(server.control_plane.requests().iter().all(|request| request.message().error().is_none()));

    let mut watch = server.tool("watch", &["--once", "--observe", "cluster=bad"]);
    let version = server.control_plane.version(type_url::CLUSTER);
    assert_eq!(watch.line().await, Some(format!("● cluster bad  version {version}")));
    assert!(watch.line().await.unwrap().starts_with("  gRPC rejects it: eds_cluster_config"));
    assert_eq!(watch.line().await, None);
}

#[tokio::test]
async fn messages_are_json_for_whoever_reads_the_output() {
    let server = Server::start().await;
    server.control_plane.set(cluster("bad").edit(|cluster| cluster.eds_cluster_config = None));
    let message = json!({"@type": type_url::CLUSTER, "name": "bad", "type": "EDS"});
    let mut watch = server.tool("watch", &["--once", "--raw", "cluster=bad"]);
    let text = watch.text().await;
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), message, "{text}");
    assert!(text.lines().count() > 3, "for people: {text}");
    let notes = watch.complaints().await;
    assert!(notes.contains("● cluster bad  version ") && notes.contains("gRPC rejects it: "), "{notes}");
    assert_eq!(watch.exit().await.code(), Some(0));

    let mut watch = server.tool("watch", &["--once", "--raw", "--json", "cluster=bad"]);
    assert_eq!(watch.json().await["resource"], message);

    let mut watch = server.tool("watch", &["--once", "--raw", "--resource-timeout=0.3", "cluster=nope"]);
    assert_eq!(watch.text().await, "");
    watch.complaint("○ cluster nope  absent: NOT_FOUND").await;
    assert_eq!(watch.exit().await.code(), Some(1));
}

#[tokio::test]
async fn a_broken_pipe_is_a_good_end() {
    let server = Server::start().await;
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let bootstrap = server.bootstrap().display().to_string();
    let bootstrap = ["--bootstrap", &*bootstrap];
    for (command, args) in [
        (&["--help"] as &[_], &[] as &[_]),
        (&["watch", "--help"], &[]),
        (&["--version"], &[]),
        (&["completions", "bash"], &[]),
        (&["watch", "cluster=*"], &bootstrap),
        (&["watch", "--once", "--raw", "cluster=*"], &bootstrap),
        (&["walk", "xds:///shop"], &bootstrap),
        (&["relay", "--listen", "127.0.0.1:0"], &bootstrap),
    ] {
        let mut tool = Process::tool_into_a_broken_pipe(command.iter().chain(args));
        tool.assert_ends_well(&format!("{command:?}")).await;
    }
}

#[tokio::test]
async fn a_broken_pipe_is_a_good_end_of_the_examples_too() {
    for example in EXAMPLES {
        Process::into_a_broken_pipe(example, ["--help"]).assert_ends_well(example).await;
    }
}

#[tokio::test]
async fn bad_input_is_exit_code_2_and_what_to_write_instead() {
    let server = Server::start().await;
    let good = server.bootstrap().display().to_string();
    let partial = server.folder.path().join("partial.json");
    fs::write(&partial, r#"{"node": {"id": "me"}}"#).unwrap();
    let partial = partial.display().to_string();
    let envoys = server.folder.path().join("envoy.yaml");
    fs::write(&envoys, "dynamic_resources: {}").unwrap();
    let envoys = envoys.display().to_string();
    let minimal = "a bootstrap has at least {\"xds_servers\"";
    for (args, parts) in [
        (
            vec![],
            vec![
                "xdskit: a subcommand is missing",
                "watch, walk, call, status, relay, check, completions, man or help",
            ],
        ),
        (vec!["wacth"], vec!["unknown subcommand wacth", "did you mean watch?"]),
        (
            vec!["watch", "--bootstrp=x"],
            vec!["xdskit watch: unknown option --bootstrp", "did you mean --bootstrap?"],
        ),
        (vec!["help", "wacth"], vec!["unknown subcommand wacth"]),
        (vec!["watch", "cluster=a"], vec!["--bootstrap PATH is missing", "GRPC_XDS_BOOTSTRAP_CONFIG"]),
        // Before a missing bootstrap.
        (vec!["watch"], vec!["TYPE=NAME is missing"]),
        (vec!["walk", "cart"], vec!["\"cart\"", "write xds:///cart"]),
        (vec!["walk", "--observe", "--header=a=b"], vec!["--header", "--observe"]),
        (vec!["watch", "cluster=a"], vec![minimal]),
        (vec!["watch", "cluster=a", "--bootstrap", &partial], vec![&partial, "xds_servers"]),
        (vec!["watch", "cluster=a", "--bootstrap", &partial], vec![minimal]),
        (vec!["watch", "cluster=a", "--bootstrap", &envoys], vec![&envoys, "dynamic_resources"]),
        (vec!["watch", "cluster=a", "--bootstrap", &envoys], vec!["in Envoy's format, dynamic_resources"]),
        (vec!["watch", "--bootstrap", &good], vec!["TYPE=NAME is missing", "'cluster=*'"]),
        (vec!["watch", "--bootstrap", &good, "clster=a"], vec!["\"clster\"", "did you mean cluster?"]),
        (vec!["watch", "--bootstrap", &good, "cluster=a", "--filter", "rout=a"], vec!["did you mean route?"]),
        (vec!["watch", "--bootstrap", &good, "cluster=a", "--filter="], vec!["--filter", "is empty"]),
        (vec!["walk", "--bootstrap", &good], vec!["TARGET", "xds:///shop"]),
        (vec!["walk", "--bootstrap", &good, "cart"], vec!["\"cart\"", "write xds:///cart"]),
        (vec!["walk", "--bootstrap", &good, "http://cart/"], vec!["write xds:///cart"]),
        (vec!["walk", "--bootstrap", &good, "xds://nobody/cart"], vec!["nobody"]),
        (vec!["walk", "--bootstrap", &good, "--raw", "xds:///a"], vec!["--raw", "xdskit watch --raw"]),
        (vec!["walk", "--bootstrap", &good, "--observe", "--header=a=b"], vec!["--header", "--observe"]),
        (vec!["walk", "--bootstrap", &good, "--observe", "xds://nobody/a"], vec!["nobody"]),
        (vec!["relay", "--bootstrap", &good, "--listen=here"], vec!["--listen \"here\"", "HOST:PORT"]),
        (vec!["status"], vec!["ADDR is missing", "127.0.0.1:18001"]),
        (vec!["status", "localhost"], vec!["\"localhost\" has no port", "HOST:PORT"]),
        (vec!["status", "ftp://localhost:1"], vec!["\"ftp\"", "HOST:PORT"]),
        (vec!["completions", "tcsh"], vec!["must be bash, elvish, fish, powershell or zsh"]),
        (
            vec!["man", "wacth"],
            vec!["\"wacth\": must be watch, walk, call, status, relay, check, completions or man"],
        ),
        (vec!["call", "--bootstrap", &good, "--target=xds://nobody/a"], vec!["nobody"]),
    ] {
        let mut tool = Process::tool(&args, &[]);
        assert_eq!(tool.exit().await.code(), Some(2), "{args:?}");
        assert_eq!(tool.line().await, None, "{args:?}");
        let line = tool.complaint(parts[0]).await;
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} are not in {line:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_arguments_comes_before_a_missing_bootstrap() {
    for (command, args, part) in [
        ("watch", &["clster=a"] as &[_], "did you mean cluster?"),
        ("watch", &["--once"], "TYPE=NAME is missing"),
        ("watch", &["--filter=", "cluster=a"], "--filter \"\": is empty"),
        ("walk", &[], "TARGET, such as xds:///shop, is missing"),
        ("walk", &["--observe", "xds:///"], "no name of a service"),
        ("walk", &["--header=a", "xds:///a"], "--header \"a\": must be NAME=VALUE"),
        ("call", &["--target=cart"], "target \"cart\": does not start with `xds:`; write xds:///cart"),
        ("call", &["--target=xds:///cart", "Get"], "\"Get\" must be of the form /pkg.Service/Method"),
        ("call", &["--target=xds:///cart", "--authority=a b"], "--authority \"a b\": "),
        ("call", &["--target=xds:///cart", "--timeout=0"], "--timeout \"0\": "),
        ("relay", &[], "--listen ADDR is missing"),
        ("relay", &["--listen=here"], "--listen \"here\": must be HOST:PORT"),
        ("relay", &["--listen=here:70000"], "--listen \"here:70000\": must be HOST:PORT"),
    ] {
        Process::tool([command].iter().chain(args), &[]).assert_is_rejected(part).await;
        Process::start(command, args).assert_is_rejected(part).await;
    }
    for (command, args) in [
        ("watch", &["cluster=a"] as &[_]),
        ("walk", &["xds:///a"]),
        ("call", &["--target=xds:///a"]),
        ("relay", &["--listen=127.0.0.1:0"]),
    ] {
        let missing = "--bootstrap PATH is missing";
        Process::tool([command].iter().chain(args), &[]).assert_is_rejected(missing).await;
        Process::start(command, args).assert_is_rejected(missing).await;
    }
}

#[tokio::test]
async fn a_failure_is_exit_code_1_with_the_reason() {
    let server = Server::start().await;
    let addr = server.control_plane.addr().to_string();
    let (in_use, missing) = (format!("--listen={addr}"), "--tls-certificate=no/such/file");
    for (command, args, part) in [
        ("relay", &[&*in_use] as &[_], "Address already in use"),
        ("relay", &["--listen=127.0.0.1:0", missing, "--tls-key=no/such/key"], "no/such/file"),
    ] {
        let mut tool = server.tool(command, args);
        tool.complaint(part).await;
        assert_eq!((tool.exit().await.code(), tool.line().await), (Some(1), None), "{command} {args:?}");
    }
    let mut call = server.tool("call", &["--target=xds:///nope", "--timeout=0.3", "/test.Echo/Echo"]);
    assert!(call.line().await.unwrap().starts_with("DEADLINE_EXCEEDED in "));
    assert_eq!(call.exit().await.code(), Some(1));
}

#[tokio::test]
async fn help_completions_and_manual_pages_are_printed() {
    for (args, part) in [
        (&["--help"] as &[_], "Usage: xdskit <SUBCOMMAND>"),
        (&["help"], "Usage: xdskit <SUBCOMMAND>"),
        (&["help", "watch"], "Usage: xdskit watch [OPTIONS] [TYPE=NAME]..."),
        (&["watch", "-h"], "Usage: xdskit watch [OPTIONS] [TYPE=NAME]..."),
        (&["--version"], concat!("xdskit ", env!("CARGO_PKG_VERSION"))),
        (&["help", "call"], "Usage: xdskit call [OPTIONS] --target <TARGET> [METHOD] [BODY]"),
        (&["man"], "xdskit \\- Looks at a service mesh by xDS"),
        (&["man", "call"], "xdskit\\-call \\- Makes calls through a channel"),
        (&["man", "walk"], "\\fB\\-\\-observe\\fR"),
        (&["completions", "bash"], "complete -F _xdskit"),
        (&["completions", "zsh"], "#compdef xdskit"),
        (&["completions", "fish"], "complete -c xdskit"),
        (&["completions", "powershell"], "Register-ArgumentCompleter"),
        (&["completions", "elvish"], "edit:completion"),
    ] {
        let mut tool = Process::tool(args, &[]);
        let text = tool.text().await;
        assert!(text.contains(part), "{part:?} is not in {text}");
        assert_eq!(tool.exit().await.code(), Some(0));
    }
}

#[tokio::test]
async fn all_examples_have_help() {
    for example in EXAMPLES {
        Process::start(example, ["--help"]).assert_is_help(&format!("usage: {example}")).await;
        Process::start(example, ["--bogus"]).assert_is_rejected("--bogus").await;
    }
}

const EXAMPLES: [&str; 4] = ["watch", "walk", "call", "relay"];
