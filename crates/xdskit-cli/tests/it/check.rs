//! `xdskit check` as a program: its exit codes and its inputs.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs the tool with a text as its standard input.
fn check(args: &[&str], input: &str) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check/broken");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdskit"));
    command.arg("check").args(args).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may end without reading its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// The exit code, and the lines of the output.
fn ended(args: &[&str], input: &str) -> (Option<i32>, Vec<String>) {
    let output = check(args, input);
    let text = String::from_utf8(output.stdout).expect("it prints text");
    (output.status.code(), text.lines().map(str::to_owned).collect())
}

#[test]
fn check_prints_what_is_wrong_and_where() {
    let (code, lines) = ended(&["no-source.yaml"], "");
    assert_eq!(code, Some(1));
    let expected = [
        "no-source.yaml: note: references to the kind endpoints are not checked, since the files have none of it: 2 [dangling-reference]",
        "no-source.yaml:6:3: error: cluster \"stock\": eds_cluster_config: must be set [rejected]",
        "1 error, 0 warnings, 1 note in 2 resources of 1 file",
    ];
    assert_eq!(lines, expected);
    let (code, _) = ended(&["no-weight.yaml"], "");
    assert_eq!(code, Some(0), "warnings are no failure");
    let (code, lines) = ended(&["--fail-on", "warning", "--format", "json", "no-weight.yaml"], "");
    assert_eq!(code, Some(1));
    assert!(lines[0].starts_with("{\"rule\":\"left-out\",\"severity\":\"warning\","), "{lines:?}");
}

#[test]
fn check_reads_the_standard_input_beside_files() {
    let endpoints = "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\ncluster_name: shop\nendpoints: 7\n";
    let (code, lines) = ended(&["unhealthy.yaml", "-"], endpoints);
    assert_eq!(code, Some(1));
    assert!(
        lines.iter().any(|line| line.starts_with("stdin:3:1: error: ") && line.ends_with("[malformed]")),
        "{lines:?}"
    );
}

#[test]
fn check_ends_with_2_for_what_cannot_be_read() {
    for args in [
        &["syntax.json", "no-source.yaml"][..],
        &["nothing.yaml"],
        &[],
        &["--server", "--client", "cycle.yaml"],
    ] {
        let output = check(args, "");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let reason = String::from_utf8(output.stderr).expect("it prints text");
        assert!(reason.starts_with("xdskit check: "), "{args:?}: {reason}");
    }
    let (_, lines) = ended(&["syntax.json", "no-source.yaml"], "");
    assert!(lines[0].starts_with("syntax.json:5:6: error: expected `,` or `}`"), "{lines:?}");
    assert!(lines[2].starts_with("no-source.yaml:6:3: error: "), "the other file is checked: {lines:?}");
}
