use clap::ValueEnum;

use super::*;

/// Returns the error of the command line, or the arguments.
fn parse(line: &str) -> Result<ToolCommand, String> {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match Program::Tool(subcommand(args.first())).parse::<Tool>(args) {
        Ok(parsed) => Ok(parsed.expect("no help").command),
        Err(Failure::Usage(error)) => Err(error),
        Err(failure) => panic!("{failure:?}"),
    }
}

#[track_caller]
fn assert_same(one: &str, other: &str) {
    let [one, other] = [one, other].map(|line| format!("{:?}", parse(line).expect(line)));
    assert_eq!(one, other);
}

#[test]
fn the_command_line_is_well_formed() {
    Tool::command().debug_assert();
    let names: Vec<_> = Tool::command().get_subcommands().map(|one| one.get_name().to_owned()).collect();
    assert_eq!(names, SUBCOMMANDS);
}

#[test]
fn flags_take_values_behind_an_equals_sign_or_as_the_next_argument() {
    assert_same(
        "watch --bootstrap=b.json --protocol=delta --resource-timeout=2.5 --filter=a* cluster=a",
        "watch --bootstrap b.json --protocol delta --resource-timeout 2.5 --filter a* cluster=a",
    );
    assert_same(
        "walk --header=x-a=1=2 --header=x-b= xds:///a",
        "walk --header x-a=1=2 --header x-b= xds:///a",
    );
    assert_same(
        "relay --listen=[::1]:0 --report=0.5 --linger=1",
        "relay --listen [::1]:0 --report 0.5 --linger 1",
    );
}

#[test]
fn flags_stand_anywhere_and_the_last_one_counts() {
    assert_same("watch cluster=a --json --once", "watch --json --once cluster=a");
    assert_same("watch --bootstrap a --bootstrap b --json --json", "watch --bootstrap b --json");
    assert_same("watch a=b --type a/b *", "watch --type=a/b a=b *");
    assert_same("relay --report 1 --report 2", "relay --report 2");
}

#[test]
fn what_is_left_out_has_a_default() {
    assert_same("watch", "watch --protocol sotw");
    assert_same("relay", "relay --report 10 --linger 30 --protocol sotw");
}

#[test]
fn what_is_wrong_is_named_with_what_to_write_instead() {
    for (line, named) in [
        ("", "a subcommand is missing"),
        ("wach", "unknown subcommand wach; did you mean watch?"),
        ("watch --jsn", "unknown option --jsn; did you mean --json?"),
        ("watch -j", "unknown option -j"),
        ("watch --header a=b", "unknown option --header"),
        ("watch --bootstrap", "--bootstrap needs a value"),
        ("watch --protocol", "--protocol needs a value"),
        ("watch --protocol rest", "--protocol \"rest\": must be sotw or delta"),
        ("watch --resource-timeout soon", "--resource-timeout \"soon\": must be a number of seconds"),
        ("watch --resource-timeout 0", "--resource-timeout \"0\""),
        ("watch --resource-timeout -1", "--resource-timeout \"-1\""),
        ("watch --resource-timeout inf", "--resource-timeout \"inf\""),
        ("watch --resource-timeout NaN", "--resource-timeout \"NaN\""),
        ("watch --resource-timeout 1e300", "--resource-timeout \"1e300\""),
        ("watch clusters=shop", "unknown type \"clusters\"; did you mean cluster?"),
        ("watch shop", "\"shop\" is not of the form TYPE=NAME, such as cluster=shop"),
        (
            "watch --filter clusters=*",
            "--filter \"clusters=*\": unknown type \"clusters\"; did you mean cluster?",
        ),
        ("watch --filter=", "--filter \"\": is empty"),
        ("watch --type", "--type needs a value"),
        ("watch --type shop.Banner sale", "--type: \"shop.Banner\" is no type URL"),
        ("watch --type type.googleapis.com/ sale", "is no type URL"),
        (
            "watch --type type.googleapis.com/envoy.config.cluster.v3.Cluster shop",
            "one of the protocol's own types, which are watched as typed resources; write cluster=NAME",
        ),
        ("watch --type a/b c --observe", "--observe"),
        ("watch --proto set.pb cluster=a", "--proto \"set.pb\": needs --type"),
        ("walk --header x-a", "--header \"x-a\": must be NAME=VALUE"),
        ("walk --header =1", "must be NAME=VALUE"),
        ("relay --listen", "--listen needs a value"),
        ("relay --report 0", "--report \"0\""),
        ("relay --linger long", "--linger \"long\""),
        ("relay cluster=shop", "unknown argument cluster=shop"),
        ("call", "--target is missing"),
        ("call --target a --credentials tls", "--credentials \"tls\": must be insecure or xds"),
        ("call --target a --timeout soon", "--timeout \"soon\""),
        ("check --against envoy a.json", "--against \"envoy\": must be grpc, xdskit or observe"),
        ("check --format xml a.json", "--format \"xml\": must be text, json or sarif"),
        ("check --input-format xml a.json", "--input-format \"xml\": must be json, yaml, text or binary"),
        ("check --fail-on never a.json", "--fail-on \"never\": must be error, warning or note"),
        ("man wach", "\"wach\": must be watch, walk"),
        ("status --timeout never", "--timeout \"never\""),
        ("completions", "SHELL is missing"),
        ("completions tcsh", "\"tcsh\": must be bash, elvish, fish, powershell or zsh"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(named), "{named:?} is not in {error:?} of {line:?}");
    }
}

#[test]
fn each_subcommand_has_a_manual_page_with_its_options() {
    for name in SUBCOMMANDS {
        let mut page = Vec::new();
        manual(Some(name)).render(&mut page).expect("a Vec");
        let page = String::from_utf8(page).expect("text").replace("\\-", "-");
        let title = format!(".TH xdskit-{name} 1  \"xdskit {}\"", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&title), "{page}");
        for option in described(name).get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(long) = option.get_long() else { continue };
            assert!(page.contains(&format!("--{long}")), "{long} is not in the page of {name}");
        }
    }
}

#[test]
fn the_manual_page_of_the_tool_refers_to_pages_that_there_are() {
    let mut page = Vec::new();
    manual(None).render(&mut page).expect("a Vec");
    let page = String::from_utf8(page).expect("text").replace("\\-", "-");
    let pages: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("xdskit-")?.strip_suffix("(1)")).collect();
    assert_eq!(pages, SUBCOMMANDS);
}

#[test]
fn there_are_completions_for_each_shell() {
    for shell in Shell::value_variants() {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Tool::command(), "xdskit", &mut script);
        let script = String::from_utf8(script).expect("text");
        for name in SUBCOMMANDS.into_iter().chain(["--bootstrap", "--once"]) {
            assert!(script.contains(name.trim_start_matches('-')), "{name} is not in that of {shell}");
        }
    }
}
