//! The pages of `docs/guides`: their commands are run as they stand there, with the tool, in a folder of their own. Each page has its
//! server, whose address alone is replaced: go-control-plane, this crate's control plane, or one with what Istio's, Consul's and Envoy Gateway's
//! servers sent (`dumps/`). Commands of programs that are not here, such as `kubectl`, are listed with each test.

mod page;

use std::{fs, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::{process, time::timeout};
use xdskit::{
    control_plane::store::Transaction,
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

use self::page::{Command, Page};
use crate::{
    dumps::{self, Dump},
    peer::{free_port, program},
    process::{PATIENCE, Process},
};

/// A reader's shell: a folder, and `xdskit` in the path.
struct Shell {
    folder: TempDir,
    /// What stands in a page, and what is there instead.
    replaced: Vec<(String, String)>,
}

impl Shell {
    fn new(replaced: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let tools = folder.path().join("bin");
        fs::create_dir(&tools).expect("the folder is there");
        let tool = PathBuf::from(program("XDSKIT_INTEROP_TOOL")).canonicalize().expect("it is there");
        std::os::unix::fs::symlink(tool, tools.join("xdskit")).expect("the folder is there");
        let replaced = replaced.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned()));
        Self { folder, replaced: replaced.collect() }
    }

    fn replace(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Writes a file of the page.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), self.replace(text)).expect("the folder is there");
    }

    /// Runs a command. It ends with exit code 0, and prints something; if the page shows its output, that and nothing else.
    async fn run(&self, command: &Command) {
        let output = self.output(&command.line).await;
        let [printed, complaint] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
        let line = &command.line;
        match &command.output {
            Some(expected) => assert_eq!(printed, self.replace(expected), "{line}\n{complaint}"),
            None => assert!(!line.starts_with("xdskit") || !printed.is_empty(), "{line}\n{complaint}"),
        }
        assert!(output.status.success(), "{line}\n{printed}\n{complaint}");
    }

    async fn output(&self, line: &str) -> std::process::Output {
        let mut shell = process::Command::new("bash");
        let path = std::env::var("PATH").expect("there is a path");
        shell.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        shell.env_remove("RUST_LOG").current_dir(self.folder.path()).args(["-c", &self.replace(line)]);
        timeout(BOUND, shell.kill_on_drop(true).output()).await.expect("it ends").expect("bash is there")
    }
}

/// Whether a command is one of a program that is not here.
fn is_of(command: &Command, programs: &[&str]) -> bool {
    programs.iter().any(|program| command.line.starts_with(program))
}

#[tokio::test]
async fn the_commands_for_go_control_plane() {
    let port = free_port().to_string();
    let shell = Shell::new(&[("18000", &port)]);
    let mut server = None;
    for command in Page::read("go-control-plane.md").commands() {
        if let Some(arguments) = command.line.strip_prefix("(cd tests/interop/gcp && go run . ") {
            let arguments = shell.replace(arguments.trim_end_matches(')'));
            let mut command = process::Command::new(program("XDSKIT_INTEROP_GCP"));
            let mut started = Process::start("gcp", command.args(arguments.split_whitespace()));
            started.line(PATIENCE).await.expect("it prints its port");
            server = Some(started);
        } else if !is_of(&command, &["kubectl"]) {
            assert!(server.is_some(), "the page starts its server first");
            shell.run(&command).await;
        }
    }
}

/// The transaction of the page, which stands there in the same words.
fn fill(tx: &mut Transaction<'_>) {
    tx.set(listener("shop").rds("shop-routes"));
    tx.set(route_config("shop-routes").virtual_host(["*"], [route::prefix("/").cluster("cart")]));
    tx.set(cluster("cart"));
    tx.set(endpoints("cart").locality("eu", "a", ["10.0.0.1:8080", "10.0.0.2:8080"]));
}

#[tokio::test]
async fn the_commands_for_a_server_of_ones_own() {
    let page = Page::read("own-server.md");
    let sets = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with("tx.set("));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let [program, _call] = page.blocks("rust,no_run")[..] else { panic!("the page has two programs") };
    let here = include_str!("guides.rs").split_once("fn fill(").expect("it is here").1;
    assert_eq!(sets(program), sets(here.split_once("\n}").expect("its end").0));

    let server = TestControlPlane::start().await;
    server.update(fill);
    let shell = Shell::new(&[("127.0.0.1:18000", &server.addr().to_string())]);
    for command in page.commands() {
        shell.run(&command).await;
    }
    // Those of the overview need any server with the target.
    let overview = Page::read("README.md").commands();
    assert!(overview.iter().filter(|command| is_of(command, &["xdskit"])).count() > 2);
    for command in overview.iter().filter(|command| !is_of(command, &["cargo"])) {
        shell.run(command).await;
    }
}

#[tokio::test]
async fn the_commands_for_istiod() {
    let page = Page::read("istio.md");
    // The recorded mesh has its services in the namespace `shop`.
    let [grpc, sidecar] = ["istio/grpc", "istio/sidecar"].map(Dump::read);
    for (dump, of_sidecar) in [(grpc, false), (sidecar, true)] {
        let server = dumps::serve(&dump).await;
        let shell =
            Shell::new(&[("127.0.0.1:15010", &server.addr().to_string()), (".default.svc", ".shop.svc")]);
        let mut ran = 0;
        for command in page.commands() {
            let is_tool = command.line.starts_with("xdskit");
            if is_of(&command, &["kubectl"]) || is_tool && command.line.contains("sidecar.json") != of_sidecar
            {
                continue;
            }
            ran += usize::from(is_tool);
            shell.run(&command).await;
        }
        assert!(ran > 0, "the page has commands for both");
        assert_no_nack(&server);
    }
}

#[tokio::test]
async fn the_commands_for_consul() {
    let page = Page::read("consul.md");
    let server = dumps::serve(&Dump::read("consul/sidecar")).await;
    let shell = Shell::new(&[("127.0.0.1:8502", &server.addr().to_string())]);
    let [bootstrap] = page.blocks("json")[..] else { panic!("the page has one bootstrap") };
    shell.write("bootstrap.json", bootstrap);
    for command in page.commands() {
        if !is_of(&command, &["consul"]) {
            shell.run(&command).await;
        }
    }
    assert_no_nack(&server);
}

/// The page runs the tool in a container; its bootstrap has TLS, which the recorded server does without.
#[tokio::test]
async fn the_commands_for_envoy_gateway() {
    let page = Page::read("envoy-gateway.md");
    let server = dumps::serve(&Dump::read("envoy-gateway/gateway")).await;
    let [bootstrap] = page.blocks("json")[..] else { panic!("the page has one bootstrap") };
    let manifest = Page::read("kubernetes/envoy-gateway.yaml").text;
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n");
    assert!(lines(&manifest).contains(&lines(bootstrap)), "the manifest has the bootstrap of the page");
    let (start, rest) = bootstrap.split_once("\"channel_creds\": [{").expect("credentials");
    let (_, end) = rest.split_once("}],").expect("their end");
    let shell = Shell::new(&[("envoy-gateway:18000", &server.addr().to_string())]);
    shell.write("bootstrap.json", &format!("{start}\"channel_creds\": [{{ \"type\": \"insecure\" }}],{end}"));
    let mut ran = 0;
    for mut command in page.commands() {
        let Some((_, in_container)) = command.line.split_once(" exec deploy/shop -- ") else { continue };
        command.line = format!("GRPC_XDS_BOOTSTRAP=bootstrap.json {in_container}");
        shell.run(&command).await;
        ran += 1;
    }
    assert!(ran > 0, "the page has commands");
    assert_no_nack(&server);
}

/// The server itself is not asked: the bootstrap is rejected.
#[tokio::test]
async fn the_commands_for_traffic_director() {
    let shell = Shell::new(&[]);
    for command in Page::read("traffic-director.md").commands() {
        let output = shell.output(&command.line).await;
        if let Some(expected) = &command.output {
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(String::from_utf8(output.stderr).expect("text"), *expected);
        }
    }
}

fn assert_no_nack(server: &TestControlPlane) {
    assert!(
        server.requests().iter().all(|request| request.message().error().is_none()),
        "nothing is rejected"
    );
}

const BOUND: Duration = Duration::from_secs(60);
