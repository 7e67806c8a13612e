//! The findings as text, as JSON, and as SARIF.

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use xdskit::error::Escaped;

use super::finding::{Finding, Rule, Severity};
use crate::json::{self, printable};

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Text,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Json,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Sarif,
}

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Report<'f> {
    /// The names of the files.
    pub(crate) files: &'f [String],
    /// The number of resources.
    pub(crate) resources: usize,
    /// What was found.
    pub(crate) findings: &'f [Finding],
}

/// A finding on a line of JSON.
#[derive(Serialize)]
struct Line<'f> {
    /// The id of the rule.
    rule: &'static str,
    /// The severity.
    severity: Severity,
    /// The file.
    file: &'f str,
    /// The line, from 1.
    line: Option<usize>,
    /// The column in characters, from 1.
    column: Option<usize>,
    /// The kind of the resource.
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    /// The name of the resource.
    name: Option<&'f str>,
    /// The path of the field.
    path: &'f str,
    /// What is wrong and why.
    message: &'f str,
}

impl Report<'_> {
    /// The output in a form.
    pub(crate) fn show(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Json => self.shown().iter().map(|finding| json::json(&self.line(finding))).collect(),
            Form::Sarif => printable(format!("{:#}\n", self.sarif())),
        }
    }

    /// The findings that are shown.
    fn shown(&self) -> &[Finding] {
        &self.findings[..self.findings.len().min(MAX_SHOWN)]
    }

    /// A line for each finding, and one with their numbers.
    fn text(&self) -> String {
        let mut text = String::new();
        for finding in self.shown() {
            text += &format!("{}", Escaped(&self.files[finding.file]));
            if let Some((line, column)) = finding.position {
                text += &format!(":{line}:{column}");
            }
            text += &format!(": {}: ", finding.severity.as_str());
            text += &format!("{} [{}]\n", Escaped(&sentence(finding)), finding.rule.id());
        }
        let beyond = self.findings.len() - self.shown().len();
        if beyond > 0 {
            text += &format!("{beyond} more are not shown\n");
        }
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        text + &format!(
            "{}, {}, {} in {} of {}\n",
            counted(count(Severity::Error), "error"),
            counted(count(Severity::Warning), "warning"),
            counted(count(Severity::Note), "note"),
            counted(self.resources, "resource"),
            counted(self.files.len(), "file"),
        )
    }

    /// A finding as JSON.
    fn line<'a>(&'a self, finding: &'a Finding) -> Line<'a> {
        Line {
            rule: finding.rule.id(),
            severity: finding.severity,
            file: &self.files[finding.file],
            line: finding.position.map(|(line, _)| line),
            column: finding.position.map(|(_, column)| column),
            kind: finding.resource.as_ref().map(|(kind, _)| *kind),
            name: finding.resource.as_ref().map(|(_, name)| &**name),
            path: &finding.path,
            message: &finding.message,
        }
    }

    /// All of it in SARIF 2.1.0, the format of code scanning.
    fn sarif(&self) -> Value {
        let rules = Rule::ALL.iter().map(|rule| {
            json!({
                "id": rule.id(),
                "shortDescription": {"text": rule.summary()},
                "defaultConfiguration": {"level": rule.severity().as_str()},
            })
        });
        let rules: Vec<_> = rules.collect();
        let results: Vec<_> = self.shown().iter().map(|finding| self.result(finding)).collect();
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {"name": "xdskit", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": results,
            }],
        })
    }

    /// A finding in SARIF.
    fn result(&self, finding: &Finding) -> Value {
        let uri = uri(&self.files[finding.file]);
        let mut physical = json!({"artifactLocation": {"uri": uri}});
        if let Some((line, column)) = finding.position {
            physical["region"] = json!({"startLine": line, "startColumn": column});
        }
        let mut location = json!({"physicalLocation": physical});
        if let Some((kind, name)) = &finding.resource {
            let dot = if finding.path.is_empty() { "" } else { ": " };
            let name = format!("{kind} {name}{dot}{}", finding.path);
            location["logicalLocations"] = json!([{"fullyQualifiedName": name}]);
        }
        json!({
            "ruleId": finding.rule.id(),
            "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
            "level": finding.severity.as_str(),
            "message": {"text": sentence(finding)},
            "locations": [location],
        })
    }
}

/// The resource, the field and the reason.
fn sentence(finding: &Finding) -> String {
    let mut text = String::new();
    if let Some((kind, name)) = &finding.resource {
        text += &format!("{kind} {name:?}: ");
    }
    if !finding.path.is_empty() {
        text += &format!("{}: ", finding.path);
    }
    text + &finding.message
}

/// A number with its noun.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The name of a file as a relative reference of a URI.
fn uri(file: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let escape =
        |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    file.bytes().map(escape).collect()
}

/// The most findings that are shown.
const MAX_SHOWN: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(form: Form) -> String {
        let finding = Finding {
            resource: Some(("cluster", "a\u{1b}[2J\u{202e}".to_owned())),
            path: "eds_cluster_config".to_owned(),
            ..Finding::new(Rule::Rejected, 0, "must be set").at(Some((3, 7)))
        };
        let unreadable = Finding::new(Rule::Unreadable, 1, "no such file");
        let files = ["mesh a.yaml".to_owned(), "b.json".to_owned()];
        Report { files: &files, resources: 1, findings: &[finding, unreadable] }.show(form)
    }

    #[test]
    fn text_has_what_where_and_why_and_controls_no_terminal() {
        let text = report(Form::Text);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("mesh a.yaml:3:7: error: cluster \"a"), "{text}");
        assert!(lines[0].ends_with("eds_cluster_config: must be set [rejected]"), "{text}");
        assert_eq!(lines[1], "b.json: error: no such file [unreadable]");
        assert_eq!(lines[2], "2 errors, 0 warnings, 0 notes in 1 resource of 2 files");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let findings = vec![Finding::new(Rule::Rejected, 0, "bad"); MAX_SHOWN + 7];
        let report = Report { files: &["a".to_owned()], resources: 1, findings: &findings };
        let text = report.show(Form::Text);
        assert_eq!(text.lines().count(), MAX_SHOWN + 2);
        assert!(text.contains("\n7 more are not shown\n10007 errors, "), "{}", &text[text.len() - 100..]);
        assert_eq!(report.show(Form::Json).lines().count(), MAX_SHOWN);
    }

    #[test]
    fn json_has_an_object_on_each_line() {
        let lines: Vec<Value> =
            report(Form::Json).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let expected = json!({
            "rule": "rejected", "severity": "error", "file": "mesh a.yaml", "line": 3, "column": 7, "type": "cluster",
            "name": "a\u{1b}[2J\u{202e}", "path": "eds_cluster_config", "message": "must be set",
        });
        assert_eq!(lines[0], expected);
        assert_eq!(lines[1]["line"], Value::Null);
    }

    /// The required fields of SARIF 2.1.0, and the references between them.
    #[test]
    fn sarif_has_the_fields_that_its_schema_requires() {
        let sarif: Value = serde_json::from_str(&report(Form::Sarif)).expect("JSON");
        assert_eq!(sarif["version"], "2.1.0");
        let run = &sarif["runs"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
        assert!(run["tool"]["driver"]["name"].is_string() && rules.len() == Rule::ALL.len());
        assert!(
            rules.iter().all(|rule| rule["id"].is_string() && rule["shortDescription"]["text"].is_string())
        );
        let results = run["results"].as_array().expect("results");
        for result in results {
            assert!(result["message"]["text"].is_string(), "{result}");
            assert!(matches!(result["level"].as_str(), Some("error" | "warning" | "note")), "{result}");
            let index = result["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
            assert_eq!(rules[index.expect("an index")]["id"], result["ruleId"]);
        }
        let location = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "mesh%20a.yaml");
        assert_eq!(location["region"], json!({"startLine": 3, "startColumn": 7}));
        assert_eq!(results[1]["locations"][0]["physicalLocation"]["region"], Value::Null);
    }
}
