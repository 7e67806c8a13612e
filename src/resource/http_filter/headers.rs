//! What an external service may see and change of a request's headers (A92, A93).

use serde::Serialize;

use crate::{
    pb::envoy::{
        config::common::mutation_rules::v3::HeaderMutationRules as MutationMessage,
        extensions::filters::http::ext_proc::v3::HeaderForwardingRules as ForwardingMessage,
        r#type::matcher::v3::{ListStringMatcher, RegexMatcher},
    },
    resource::{
        Invalid,
        matcher::{Regex, StringMatcher},
        parts,
    },
};

/// Which headers are sent to an external service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderForwardingRules {
    /// Their names; empty is all.
    pub allowed_headers: Box<[StringMatcher]>,
    /// Names of those that are not, also if they are allowed.
    pub disallowed_headers: Box<[StringMatcher]>,
}

/// Which headers an external service may change.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeaderMutationRules {
    /// Whether no header may be changed.
    pub disallow_all: bool,
    /// The names of those that it may not, also if they are allowed.
    pub disallow_expression: Option<Regex>,
    /// The names of those that it may; `None` is all.
    pub allow_expression: Option<Regex>,
    /// Whether a request fails of which it changes what it may not; otherwise that change is left out.
    pub disallow_is_error: bool,
}

impl HeaderForwardingRules {
    /// Parses the rules of a message that has both lists.
    pub(super) fn parse(message: ForwardingMessage) -> Result<Self, Invalid> {
        Self::of(message.allowed_headers, message.disallowed_headers)
    }

    /// Two lists in fields of these names.
    pub(super) fn of(
        allowed: Option<ListStringMatcher>,
        disallowed: Option<ListStringMatcher>,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            allowed_headers: matchers("allowed_headers", allowed)?,
            disallowed_headers: matchers("disallowed_headers", disallowed)?,
        })
    }

    /// Whether a header is sent to the service. `name` is in lower case.
    pub fn forwards(&self, name: &str) -> bool {
        let any = |list: &[StringMatcher]| list.iter().any(|matcher| matcher.matches(name));
        !any(&self.disallowed_headers) && (self.allowed_headers.is_empty() || any(&self.allowed_headers))
    }
}

impl HeaderMutationRules {
    /// Parses the rules; an unset field permits changes.
    pub(super) fn parse(message: MutationMessage) -> Result<Self, Invalid> {
        let regex = |field: &str, regex: Option<RegexMatcher>| {
            regex.map(Regex::parse).transpose().map_err(|e| e.at(field))
        };
        Ok(Self {
            disallow_all: message.disallow_all.is_some_and(|yes| yes.value),
            disallow_expression: regex("disallow_expression", message.disallow_expression)?,
            allow_expression: regex("allow_expression", message.allow_expression)?,
            disallow_is_error: message.disallow_is_error.is_some_and(|yes| yes.value),
        })
    }

    /// Whether the service may change a header. `name` is in lower case.
    ///
    /// Pseudo headers (`:path`) and `host` are never changed.
    pub fn allows(&self, name: &str) -> bool {
        let matches = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.matches(name));
        !self.disallow_all
            && !name.starts_with(':')
            && name != "host"
            && matches(&self.disallow_expression) != Some(true)
            && matches(&self.allow_expression) != Some(false)
    }
}

/// Parses a list of matchers, which is empty if it is unset.
fn matchers(field: &str, list: Option<ListStringMatcher>) -> Result<Box<[StringMatcher]>, Invalid> {
    let patterns = list.unwrap_or_default().patterns;
    parts::each("patterns", patterns, StringMatcher::parse).map_err(|e| e.at(field))
}
