//! Checks configuration before its rollout: what a client would do with the resources in files.
//!
//! ```text
//! files ─▶ input ─▶ documents ─▶ mesh ─┬─▶ judge ───────┬─▶ output
//!          bytes    resources          ├─▶ references ──┤   text, JSON, SARIF
//!                                      └─▶ hosts ───────┘
//! ```

mod differences;
mod documents;
mod finding;
mod hosts;
mod input;
mod judge;
mod kinds;
mod mesh;
mod output;
mod references;
mod routes;
mod source;

use std::path::PathBuf;

use clap::{Parser, ValueEnum, ValueHint};
use xdskit::{
    config::Bootstrap,
    tool_support::{DocumentError, Outline},
};

use self::{
    documents::{Content, Remark},
    finding::{Finding, Rule, Severity},
    input::{Document, Format, STDIN},
    judge::{Against, Judge, Side},
    mesh::Mesh,
    output::{Form, Report},
    source::Step,
};
use crate::program::{self, Failure, Program};

/// Checks configuration in files: what a client would reject, leave out or never use
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "check", after_help = HELP, args_override_self = true)]
pub(crate) struct CheckArgs {
    /// Files with resources, which are one configuration; - is the standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// The client that the resources are for: those of gRPC, channels of xdskit, or one that only watches
    #[arg(long, value_name = "CLIENT", value_enum, default_value_t = Against::Xdskit, allow_hyphen_values = true)]
    against: Against,
    /// All listeners are for servers
    #[arg(long)]
    server: bool,
    /// All listeners are for clients
    #[arg(long)]
    client: bool,
    /// The bootstrap of the client, for its certificate providers. Without it, all providers exist
    #[arg(long, value_name = "PATH", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    bootstrap: Option<PathBuf>,
    /// The format of all files. Without it, that of their extensions, or else of their contents
    #[arg(long, value_name = "FORMAT", value_enum, allow_hyphen_values = true)]
    input_format: Option<Format>,
    /// The form of the output
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Text, allow_hyphen_values = true)]
    format: Form,
    /// The least severity for which the exit code is 1
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = FailOn::Error, allow_hyphen_values = true)]
    fail_on: FailOn,
}

/// The least severity for which a check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Error,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Warning,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Note,
}

/// The result of a check.
#[derive(Debug)]
struct Checked {
    /// The names of the files.
    files: Vec<String>,
    /// The number of resources.
    resources: usize,
    /// What was found.
    findings: Vec<Finding>,
}

/// Checks the files and prints what was found.
pub(crate) fn run(_: Program, args: &CheckArgs) -> Result<(), Failure> {
    if args.files.is_empty() {
        return Err(Failure::Usage(
            "FILE is missing: a file with resources, or - for the standard input".to_owned(),
        ));
    }
    if args.server && args.client {
        return Err(Failure::Usage("--server and --client exclude each other".to_owned()));
    }
    let bootstrap = args.bootstrap.as_ref().map(Bootstrap::from_file).transpose()?;
    let Checked { files, resources, findings } = check(args, bootstrap.as_ref());
    let report = Report { files: &files, resources, findings: &findings };
    program::print(&report.show(args.format))?;
    outcome(&findings, args.fail_on)
}

/// What follows from the findings for the exit code.
fn outcome(findings: &[Finding], fail_on: FailOn) -> Result<(), Failure> {
    match findings.iter().filter(|finding| finding.rule == Rule::Unreadable).count() {
        0 if findings.iter().any(|finding| finding.severity <= fail_on.severity()) => Err(Failure::Missing),
        0 => Ok(()),
        1 => Err(Failure::Usage("a file cannot be read".to_owned())),
        count => Err(Failure::Usage(format!("{count} files cannot be read"))),
    }
}

/// Checks the files.
fn check(args: &CheckArgs, bootstrap: Option<&Bootstrap>) -> Checked {
    let mut mesh = Mesh::default();
    let mut size = 0;
    for path in &args.files {
        let read = input::read(path, args.input_format).and_then(|(format, bytes)| {
            size += bytes.len();
            match size <= MAX_TOTAL_SIZE {
                true => Ok((format, bytes)),
                false => Err(format!("all files together are larger than {} MiB", MAX_TOTAL_SIZE >> 20)),
            }
        });
        match read {
            Ok((format, bytes)) => add(&mut mesh, args.against, format, bytes),
            Err(reason) => {
                let file = mesh.add_file(Outline::default());
                mesh.push(Finding::new(Rule::Unreadable, file, reason));
            }
        }
    }
    let side = match (args.server, args.client) {
        (true, _) => Side::Server,
        (_, true) => Side::Client,
        (false, false) => Side::Either,
    };
    Judge { against: args.against, side, bootstrap }.check(&mut mesh);
    references::check(&mut mesh);
    hosts::check(&mut mesh);
    let files = args.files.iter().map(|path| match path.as_os_str() == STDIN {
        true => "stdin".to_owned(),
        false => path.display().to_string(),
    });
    Checked { files: files.collect(), resources: mesh.resources.len(), findings: mesh.into_findings() }
}

/// Adds the resources of a file.
fn add(mesh: &mut Mesh, against: Against, format: Format, bytes: Vec<u8>) {
    let document = match Document::read(format, bytes) {
        Ok(document) => document,
        Err(error) => {
            let file = mesh.add_file(Outline::default());
            return push(mesh, Rule::Unreadable, file, &[], error);
        }
    };
    let content = Content::read(&document);
    let file = mesh.add_file(match document {
        Document::Value(_, outline) | Document::Text(_, outline) => outline,
        Document::Binary(_) => Outline::default(),
    });
    let Content { resources, remarks, beyond } = match content {
        Ok(content) => content,
        Err(error) => return push(mesh, Rule::Unreadable, file, &[], error),
    };
    for found in resources {
        mesh.add(file, found);
    }
    for (place, remark) in remarks {
        match remark {
            Remark::Malformed(error) => push(mesh, Rule::Malformed, file, &place, error),
            Remark::UnknownField(path, what) => {
                let what = if what.starts_with("unknown field") { UNKNOWN_FIELD.to_owned() } else { what };
                let finding = Finding::new(Rule::UnknownField, file, what);
                // Who only watches sees the fields of proxies as well.
                let severity = if against == Against::Observe { Severity::Note } else { finding.severity };
                mesh.add_unknown(file, place, &path, finding.with_severity(severity));
            }
            Remark::UnknownType(type_url) => {
                let position = mesh.locate(file, &place, "@type");
                let message = format!("resources of the type {type_url:?} are not checked");
                mesh.push(Finding::new(Rule::UnknownType, file, message).at(position));
            }
        }
    }
    if beyond > 0 {
        let message = format!("there are {beyond} more resources than a file may have");
        mesh.push(Finding::new(Rule::Unreadable, file, message));
    }
}

/// Adds an error of a document, or of a resource in it.
fn push(mesh: &mut Mesh, rule: Rule, file: usize, place: &[Step], error: DocumentError) {
    let DocumentError { position, path, reason } = error;
    let position = position.or_else(|| mesh.locate(file, place, &path));
    mesh.push(Finding { path, ..Finding::new(rule, file, reason).at(position) });
}

impl FailOn {
    /// The severity.
    fn severity(self) -> Severity {
        match self {
            Self::Error => Severity::Error,
            Self::Warning => Severity::Warning,
            Self::Note => Severity::Note,
        }
    }
}

/// What becomes of a field that is not known.
const UNKNOWN_FIELD: &str = "the client does not know the field, which has no effect";

/// The maximum size of all files together in bytes.
const MAX_TOTAL_SIZE: usize = 256 << 20;

const HELP: &str = "\
A file is a DiscoveryResponse, a resource, a list of resources, Envoy's /config_dump, or the status of a client (CSDS),
in JSON, YAML, protobuf's text format or the wire format.
Exit codes: 0; 1 for errors, or with --fail-on for less; 2 for a bad command line, or a file that cannot be read.";

#[cfg(test)]
mod tests;
