//! The compilation of parsed policies.

use super::{header_table::HeaderTable, path_index::PathIndex, rule::Rule};
use crate::resource::{
    http_filter::rbac::{Permission, Policy, Principal},
    matcher::{HeaderMatcher, StringMatcher},
};

/// Compiled policies, sorted by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Policies {
    pub(super) policies: Vec<CompiledPolicy>,
    pub(super) index: PathIndex,
    pub(super) headers: HeaderTable,
    pub(super) reads: Reads,
}

/// A policy, which matches the requests that have its permissions and its principals.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompiledPolicy {
    pub(super) name: Box<str>,
    pub(super) permissions: Rule,
    pub(super) principals: Rule,
}

/// What the rules of all policies read beside headers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Reads {
    pub(super) path: bool,
    pub(super) connection: bool,
}

impl Policies {
    /// Compiles policies, which the parser has sorted by name.
    pub(super) fn new(policies: &[Policy]) -> Self {
        let mut compiled = Self::default();
        for policy in policies {
            let permissions = policy.permissions.iter().map(|rule| compiled.permission(rule)).collect();
            let principals = policy.principals.iter().map(|rule| compiled.principal(rule)).collect();
            // SV9.2: without any of either, no request matches.
            let (permissions, principals) = (Rule::AnyOf(permissions), Rule::AnyOf(principals));
            compiled.index.add(compiled.policies.len(), &permissions);
            compiled.policies.push(CompiledPolicy { name: policy.name.clone(), permissions, principals });
        }
        compiled.reads.path |= compiled.headers.has_path();
        compiled
    }

    fn permission(&mut self, permission: &Permission) -> Rule {
        match permission {
            Permission::Any => Rule::Constant(true),
            Permission::AndRules(rules) => {
                Rule::All(rules.iter().map(|rule| self.permission(rule)).collect())
            }
            Permission::OrRules(rules) => {
                Rule::AnyOf(rules.iter().map(|rule| self.permission(rule)).collect())
            }
            Permission::NotRule(rule) => Rule::Not(Box::new(self.permission(rule))),
            Permission::Header(matcher) => self.header(matcher),
            Permission::UrlPath(matcher) => self.url_path(matcher),
            Permission::DestinationIp(range) => self.of_connection(Rule::LocalIp(*range)),
            Permission::DestinationPort(port) => self.of_connection(Rule::LocalPort(*port)),
            Permission::DestinationPortRange { start, end } => {
                self.of_connection(Rule::LocalPorts(*start, *end))
            }
            // SV9.13: there is no metadata, and the name that a client asked for in TLS counts as empty.
            Permission::Metadata { invert } => Rule::Constant(*invert),
            Permission::RequestedServerName(matcher) => Rule::Constant(matcher.matches("")),
        }
    }

    fn principal(&mut self, principal: &Principal) -> Rule {
        match principal {
            Principal::Any => Rule::Constant(true),
            Principal::AndIds(ids) => Rule::All(ids.iter().map(|id| self.principal(id)).collect()),
            Principal::OrIds(ids) => Rule::AnyOf(ids.iter().map(|id| self.principal(id)).collect()),
            Principal::NotId(id) => Rule::Not(Box::new(self.principal(id))),
            Principal::Authenticated { principal_name } => {
                self.of_connection(Rule::Authenticated(principal_name.clone()))
            }
            Principal::DirectRemoteIp(range) => self.of_connection(Rule::PeerIp(*range)),
            Principal::Header(matcher) => self.header(matcher),
            Principal::UrlPath(matcher) => self.url_path(matcher),
            Principal::Metadata { invert } => Rule::Constant(*invert),
        }
    }

    fn header(&mut self, matcher: &HeaderMatcher) -> Rule {
        Rule::Header(self.headers.index_of(&matcher.name), matcher.clone())
    }

    fn url_path(&mut self, matcher: &StringMatcher) -> Rule {
        self.reads.path = true;
        Rule::UrlPath(matcher.clone())
    }

    fn of_connection(&mut self, rule: Rule) -> Rule {
        self.reads.connection = true;
        rule
    }
}
