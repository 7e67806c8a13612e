//! What a check finds, with the rules that it is found by.

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// A resource or a reference does not work.
    Error,
    /// A part has no effect, or another one than its author may expect.
    Warning,
    /// Information.
    Note,
}

impl Severity {
    /// The name in the output, which is also that of the level in SARIF.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A rule of the check. Its id is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A document cannot be read.
    Unreadable,
    /// A resource in a document cannot be read.
    Malformed,
    /// The client rejects a resource.
    Rejected,
    /// A part of a resource is left out.
    LeftOut,
    /// A field is not executed.
    NotExecuted,
    /// A field is not known.
    UnknownField,
    /// The type of a resource is not known.
    UnknownType,
    /// A listener is not of the side that is checked.
    WrongSide,
    /// A resource occurs twice.
    DuplicateResource,
    /// A reference leads nowhere.
    DanglingReference,
    /// Aggregate clusters lead to each other in a cycle.
    AggregateCycle,
    /// A setting is of an HTTP filter that there is none of.
    UnknownFilter,
    /// A route never matches.
    UnreachableRoute,
    /// A domain occurs twice.
    DuplicateDomain,
    /// The routes of a target have no virtual host for it.
    NoVirtualHost,
    /// An assignment has no usable endpoints.
    NoEndpoints,
    /// A resource is not referenced.
    Unreferenced,
}

impl Rule {
    /// All rules, in the order of their documentation.
    pub(crate) const ALL: [Self; 17] = [
        Self::Unreadable,
        Self::Malformed,
        Self::Rejected,
        Self::LeftOut,
        Self::NotExecuted,
        Self::UnknownField,
        Self::UnknownType,
        Self::WrongSide,
        Self::DuplicateResource,
        Self::DanglingReference,
        Self::AggregateCycle,
        Self::UnknownFilter,
        Self::UnreachableRoute,
        Self::DuplicateDomain,
        Self::NoVirtualHost,
        Self::NoEndpoints,
        Self::Unreferenced,
    ];

    /// The id, the usual severity, and the summary.
    fn row(self) -> (&'static str, Severity, &'static str) {
        use Severity::{Error, Note, Warning};
        match self {
            Self::Unreadable => ("unreadable", Error, "The document cannot be read."),
            Self::Malformed => ("malformed", Error, "A field of the resource has a value of another type."),
            Self::Rejected => ("rejected", Error, "The client rejects the resource."),
            Self::LeftOut => ("left-out", Warning, "The client accepts the resource without this part."),
            Self::NotExecuted => ("not-executed", Warning, "The client does not execute the field."),
            Self::UnknownField => ("unknown-field", Warning, "The client does not know the field."),
            Self::UnknownType => ("unknown-type", Note, "The client does not know the type of the resource."),
            Self::WrongSide => ("wrong-side", Error, "The listener is not of the side that is checked."),
            Self::DuplicateResource => {
                ("duplicate-resource", Error, "Two resources of a type have the same name.")
            }
            Self::DanglingReference => {
                ("dangling-reference", Error, "The referenced resource does not exist.")
            }
            Self::AggregateCycle => ("aggregate-cycle", Error, "Aggregate clusters contain each other."),
            Self::UnknownFilter => ("unknown-filter", Warning, "No HTTP filter has the name of the setting."),
            Self::UnreachableRoute => {
                ("unreachable-route", Warning, "Earlier routes match all its requests.")
            }
            Self::DuplicateDomain => ("duplicate-domain", Warning, "An earlier virtual host has the domain."),
            Self::NoVirtualHost => ("no-virtual-host", Warning, "No virtual host matches the target."),
            Self::NoEndpoints => ("no-endpoints", Warning, "The assignment has no usable endpoint."),
            Self::Unreferenced => ("unreferenced", Note, "No other resource refers to the resource."),
        }
    }

    /// The id in the output.
    pub(crate) fn id(self) -> &'static str {
        self.row().0
    }

    /// The severity, unless a finding has another.
    pub(crate) fn severity(self) -> Severity {
        self.row().1
    }

    /// What is wrong, in one sentence.
    pub(crate) fn summary(self) -> &'static str {
        self.row().2
    }
}

/// Something that is wrong, or worth to be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule.
    pub(crate) rule: Rule,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// The index of the file.
    pub(crate) file: usize,
    /// Line and column, both from 1, where the format has them.
    pub(crate) position: Option<(usize, usize)>,
    /// The kind and the name of the resource.
    pub(crate) resource: Option<(&'static str, String)>,
    /// The path of the field in the resource; empty for the resource as a whole.
    pub(crate) path: String,
    /// What is wrong and why.
    pub(crate) message: String,
}

impl Finding {
    /// A finding in a file.
    pub(crate) fn new(rule: Rule, file: usize, message: impl Into<String>) -> Self {
        Self {
            rule,
            severity: rule.severity(),
            file,
            position: None,
            resource: None,
            path: String::new(),
            message: message.into(),
        }
    }

    /// Sets the position.
    pub(crate) fn at(self, position: Option<(usize, usize)>) -> Self {
        Self { position, ..self }
    }

    /// Sets another severity than that of the rule.
    pub(crate) fn with_severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_in_the_documentation() {
        let document = include_str!("../../../../docs/CHECK.md");
        let ids: BTreeSet<_> = Rule::ALL.into_iter().map(Rule::id).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            let row = format!("| `{}` | {} |", rule.id(), rule.severity().as_str());
            assert!(document.contains(&row), "docs/CHECK.md lacks {row}");
        }
    }
}
