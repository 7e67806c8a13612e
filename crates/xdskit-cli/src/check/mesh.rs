//! The resources of all files, which are one configuration.

use std::{collections::BTreeMap, mem};

use bytes::Bytes;
use serde_json::Value;
use xdskit::{
    name::ResourceName,
    tool_support::{self, Outline, Visited},
};

use super::{
    documents::Found,
    finding::{Finding, Rule},
    kinds::{Kind, Verdict},
    source::{self, Step},
};

/// A resource of the configuration.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The type.
    pub(crate) kind: &'static Kind,
    /// The name; of an `xdstp:` name, its canonical form.
    pub(crate) name: String,
    /// The message.
    pub(crate) bytes: Bytes,
    /// The message as canonical JSON.
    pub(crate) value: Value,
    /// What the client does with it; set once all resources are known.
    pub(crate) verdict: Option<Verdict>,
    /// The index of the file.
    file: usize,
    /// The path in the document.
    place: Vec<Step>,
}

/// All resources, and what was found.
#[derive(Debug, Default)]
pub(crate) struct Mesh {
    /// The resources, in the order of the files.
    pub(crate) resources: Vec<Resource>,
    /// The resources by kind and name; of several with a name, the first.
    by_name: BTreeMap<(&'static str, String), usize>,
    /// The resources by their file and place.
    by_place: BTreeMap<(usize, Vec<Step>), usize>,
    /// The positions in each file.
    outlines: Vec<Outline>,
    /// The paths of fields that are not known, by the file and the place of the resource.
    unknown: BTreeMap<(usize, Vec<Step>), Vec<String>>,
    /// What was found.
    findings: Vec<Finding>,
}

impl Mesh {
    /// Adds a file, and returns its index.
    pub(crate) fn add_file(&mut self, outline: Outline) -> usize {
        self.outlines.push(outline);
        self.outlines.len() - 1
    }

    /// Adds a resource of a file.
    pub(crate) fn add(&mut self, file: usize, found: Found) {
        let Found { kind, bytes, place } = found;
        let name = canonical(&kind.name(&bytes));
        let value = tool_support::show_any(kind.type_url(), &bytes);
        let index = self.resources.len();
        self.by_place.insert((file, place.clone()), index);
        let resource = Resource { kind, name: name.clone(), bytes, value, verdict: None, file, place };
        self.resources.push(resource);
        let Some(first) = self.by_name.get(&(kind.label, name.clone())).copied() else {
            self.by_name.insert((kind.label, name), index);
            return;
        };
        let first = &self.resources[first];
        let is_same = first.bytes == self.resources[index].bytes;
        let what = if is_same { "the same content" } else { "another content" };
        let line = source::locate(&self.outlines[first.file], &first.place, "name");
        let line = line.map(|(line, _)| format!(", line {line}")).unwrap_or_default();
        let reason = format!(
            "the name occurs in file {}{line} already, with {what}: a response with both is rejected",
            first.file + 1
        );
        self.report(index, Rule::DuplicateResource, "name", reason);
    }

    /// Adds that the reader of a file has skipped a field that it does not know.
    pub(crate) fn add_unknown(&mut self, file: usize, place: Vec<Step>, path: &str, finding: Finding) {
        let resource = self.by_place.get(&(file, place.clone())).map(|index| &self.resources[*index]);
        let resource = resource.map(|resource| (resource.kind.label, resource.name.clone()));
        let position = source::locate(&self.outlines[file], &place, path);
        self.findings.push(Finding { path: path.to_owned(), resource, ..finding.at(position) });
        self.unknown.entry((file, place)).or_default().push(plain(path));
    }

    /// Whether fields of a part of a resource may have been skipped, so that the part is not known completely.
    pub(crate) fn has_unknown_fields(&self, resource: usize, path: &str) -> bool {
        let Resource { file, place, .. } = &self.resources[resource];
        let path = plain(path);
        let of = |place: &[Step]| self.unknown.get(&(*file, place.to_vec())).into_iter().flatten();
        // The text format has the warnings of a whole file, and further ones are not listed.
        of(&[]).next().is_some() || of(place).any(|unknown| unknown.is_empty() || unknown.starts_with(&path))
    }

    /// The index of a resource.
    pub(crate) fn find(&self, kind: &'static str, name: &str) -> Option<usize> {
        self.by_name.get(&(kind, canonical(name))).copied()
    }

    /// Whether there is a resource of a kind.
    pub(crate) fn has(&self, kind: &'static str) -> bool {
        let first = self.by_name.range((kind, String::new())..).next();
        first.is_some_and(|((of, _), _)| *of == kind)
    }

    /// The indices of the resources of a kind.
    pub(crate) fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = usize> + '_ {
        let all = self.resources.iter().enumerate();
        all.filter(move |(_, resource)| resource.kind.label == kind).map(|(index, _)| index)
    }

    /// Visits the messages in a resource.
    pub(crate) fn visit(&self, resource: usize, visit: &mut dyn FnMut(Visited<'_>)) {
        tool_support::visit_messages(&self.resources[resource].value, visit);
    }

    /// Adds a finding in a resource.
    pub(crate) fn report(&mut self, resource: usize, rule: Rule, path: &str, message: impl Into<String>) {
        let finding = self.in_resource(resource, rule, path, message);
        self.findings.push(finding);
    }

    /// A finding in a resource, which is not added yet.
    pub(crate) fn in_resource(
        &self,
        resource: usize,
        rule: Rule,
        path: &str,
        message: impl Into<String>,
    ) -> Finding {
        let Resource { kind, name, file, place, .. } = &self.resources[resource];
        Finding {
            resource: Some((kind.label, name.clone())),
            path: path.to_owned(),
            ..Finding::new(rule, *file, message).at(source::locate(&self.outlines[*file], place, path))
        }
    }

    /// Adds a finding.
    pub(crate) fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// The position in a file.
    pub(crate) fn locate(&self, file: usize, place: &[Step], path: &str) -> Option<(usize, usize)> {
        source::locate(&self.outlines[file], place, path)
    }

    /// The findings, in the order of files and lines.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        let mut findings = mem::take(&mut self.findings);
        findings.sort_by(|one, other| {
            let key = |finding: &Finding| (finding.file, finding.position, finding.severity, finding.rule);
            key(one).cmp(&key(other)).then_with(|| one.path.cmp(&other.path))
        });
        findings
    }
}

impl Resource {
    /// The index of its file.
    pub(crate) fn file(&self) -> usize {
        self.file
    }

    /// Whether the client uses it.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Accepted(_)))
    }

    /// Whether it is no message at all, so that nothing is known of it.
    pub(crate) fn is_malformed(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Rejected { is_malformed: true, .. }))
    }
}

/// A path whose fields may be written in either form.
fn plain(path: &str) -> String {
    path.replace('_', "").to_ascii_lowercase()
}

/// The form of a name that identifies a resource.
fn canonical(name: &str) -> String {
    ResourceName::parse(name).map_or_else(|_| name.to_owned(), |name| name.as_str().to_owned())
}
