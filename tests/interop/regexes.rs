//! Regular expressions beside Go's package `regexp`, a second implementation of the syntax of RE2: patterns from seeds, what of them is
//! accepted, and which texts they match as a whole. `XDSKIT_INTEROP_REGEXES` is the number of patterns, and
//! `XDSKIT_INTEROP_REGEX_SEED` the first seed.

mod patterns;

use std::{env, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};
use xdskit::resource::matcher::Regex;

use self::patterns::Random;
use crate::peer::program;

/// A pattern with texts.
struct Case {
    seed: u64,
    pattern: String,
    texts: Vec<String>,
}

#[tokio::test]
async fn m6_patterns_and_their_matches_are_those_of_go() {
    let number = |name, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("XDSKIT_INTEROP_REGEX_SEED", 1);
    let seeds = first..first + number("XDSKIT_INTEROP_REGEXES", 4000);
    let cases: Vec<_> = seeds.map(Case::new).chain(Case::odd()).collect();
    let answers = ask(&cases).await;
    assert_eq!(answers.len(), cases.len());
    let differences = cases.iter().zip(&answers).filter_map(|(case, answer)| case.difference(answer));
    let differences: Vec<_> = differences.take(20).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let accepted = answers.iter().filter(|answer| answer["error"].is_null()).count();
    assert!(4 * accepted > cases.len(), "{accepted} of {} patterns are accepted", cases.len());
    let matched = answers
        .iter()
        .filter(|answer| answer["matches"].as_array().is_some_and(|all| all.contains(&json!(true))));
    assert!(8 * matched.count() > cases.len(), "the texts fit the patterns");
}

/// What Go and RE2 themselves differ in, with the answer of RE2, which this crate gives.
#[tokio::test]
async fn m6_differences_of_go_from_re2_are_known() {
    let cases: Vec<_> = DIFFERENCES.iter().map(|one| Case::of(one.pattern)).collect();
    let answers = ask(&cases).await;
    for (Difference { pattern, in_go, in_re2, why }, answer) in DIFFERENCES.iter().zip(&answers) {
        let accepts = answer["error"].is_null();
        assert_eq!(accepts, in_go.unwrap_or(accepts), "{pattern:?} in Go: {why}");
        assert_eq!(Regex::new(pattern).is_ok(), *in_re2, "{pattern:?} here: {why}");
    }
}

/// A pattern that Go and RE2 do not both accept.
struct Difference {
    pattern: &'static str,
    /// Whether Go accepts it; `None` if that depends on the release.
    in_go: Option<bool>,
    in_re2: bool,
    why: &'static str,
}

#[rustfmt::skip]
const DIFFERENCES: &[Difference] = &[
    Difference { pattern: r"\C", in_go: Some(false), in_re2: true, why: "Go matches no single bytes" },
    Difference { pattern: r"\p{Letter}", in_go: None, in_re2: false, why: "Go has the long names of categories since 1.25" },
    Difference { pattern: r"\p{lu}", in_go: None, in_re2: false, why: "Go compares names of properties without regard to case since 1.25" },
    Difference { pattern: r"\p{ASCII}", in_go: None, in_re2: false, why: "Go has more names since 1.25" },
    Difference { pattern: r"\p{Old_Italic}", in_go: None, in_re2: true, why: "Go does not find names of several words since 1.25" },
    Difference { pattern: r"((a{1000}){0}){2}", in_go: Some(true), in_re2: false, why: "Go does not count what is in a repetition of {0}" },
];

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let pattern = random.pattern();
        let texts = (0..TEXTS).map(|_| random.text(&pattern)).collect();
        Self { seed, pattern, texts }
    }

    fn of(pattern: &str) -> Self {
        let mut random = Random::new(0);
        let texts = (0..TEXTS).map(|_| random.text(pattern)).collect();
        Self { seed: 0, pattern: pattern.to_owned(), texts }
    }

    /// Patterns that other syntaxes read in another way.
    fn odd() -> impl Iterator<Item = Self> {
        patterns::ODD.iter().map(|pattern| Self::of(pattern))
    }

    /// A description of what differs from the answer of Go.
    fn difference(&self, answer: &Value) -> Option<String> {
        let Self { seed, pattern, texts } = self;
        let difference = match (Regex::new(pattern), answer["error"].as_str()) {
            (Ok(_), Some(error)) => format!("is accepted, and not by Go: {error}"),
            (Err(error), None) if is_known(pattern, &error.to_string()) => return None,
            (Err(error), None) => format!("is accepted by Go alone: {error}"),
            (Err(_), Some(_)) => return None,
            (Ok(regex), None) => {
                let in_go = texts.iter().enumerate().map(|(index, _)| answer["matches"][index] == true);
                let differs = |(text, in_go): &(&String, bool)| regex.matches(text) != *in_go;
                let (text, in_go) = texts.iter().zip(in_go).find(differs)?;
                let what = if in_go { "matches" } else { "does not match" };
                format!("{what} {text:?} in Go")
            }
        };
        Some(format!("seed {seed}: {pattern:?} {difference}"))
    }
}

/// Whether a pattern is rejected for a reason that RE2 does not have, a limit that `docs/spec/VALIDATION.md` names; or that Go does not
/// have: see [`DIFFERENCES`]. The names of properties have a test of their own.
fn is_known(pattern: &str, error: &str) -> bool {
    let limits = ["properties and long ranges", "nest", "when compiled"];
    limits.into_iter().chain(["not a general category"]).any(|why| error.contains(why))
        || error.contains("repeats repetitions") && pattern.contains("{0}")
}

#[tokio::test]
async fn m6_the_properties_of_unicode_are_those_of_go() {
    let output = Command::new(program("XDSKIT_INTEROP_REGEXES_GO")).arg("properties").output();
    let output = timeout(BOUND, output).await.expect("it ends").expect("it starts");
    let names: Vec<String> = serde_json::from_slice(&output.stdout).expect("a list");
    assert!(names.len() > 150, "{names:?}");
    let names: Vec<_> = names.iter().filter(|name| !NOT_OF_RE2.contains(&name.as_str())).collect();
    let texts: Vec<_> = ('\0'..='\u{17f}').chain(patterns::IN_TEXTS).map(String::from).collect();
    let patterns = names.iter().flat_map(|name| [format!(r"\p{{{name}}}"), format!(r"[^\P{{{name}}}]")]);
    let cases: Vec<_> = patterns.map(|pattern| Case { seed: 0, pattern, texts: texts.clone() }).collect();
    for (case, answer) in cases.iter().zip(ask(&cases).await) {
        assert!(Regex::new(&case.pattern).is_ok(), "{}", case.pattern);
        // Names of several words are among the differences.
        if answer["error"].is_null() {
            assert_eq!(case.difference(&answer), None);
        }
    }
}

/// Categories that Go has since 1.25, and RE2 does not have.
const NOT_OF_RE2: [&str; 2] = ["Cn", "LC"];

/// Asks Go's `regexp`.
async fn ask(cases: &[Case]) -> Vec<Value> {
    let mut command = Command::new(program("XDSKIT_INTEROP_REGEXES_GO"));
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let lines =
        cases.iter().map(|case| json!({"pattern": case.pattern, "texts": case.texts}).to_string() + "\n");
    let lines = lines.collect::<String>();
    // Both ends at once: the answers do not fit into a pipe.
    let written = async move { stdin.write_all(lines.as_bytes()).await };
    let both = timeout(BOUND, async { tokio::join!(written, child.wait_with_output()) });
    let (written, output) = both.await.expect("it ends");
    written.expect("it reads");
    let output = output.expect("it is a process of its own");
    assert!(output.status.success(), "{output:?}");
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    answers.map(|answer| answer.expect("JSON")).collect()
}

/// The number of texts for each pattern.
const TEXTS: usize = 24;

const BOUND: Duration = Duration::from_secs(120);
