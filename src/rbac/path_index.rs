//! The policies that can match a request, found by its path.

use std::{collections::BTreeMap, iter};

use super::rule::Rule;
use crate::resource::matcher::StringPattern;

/// Finds the policies that can match a path. Most policies name exact paths, and are looked at for these alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PathIndex {
    /// The indices of policies that need one of some exact paths, in ascending order.
    by_path: BTreeMap<Box<str>, Vec<usize>>,
    /// The indices of the others, in ascending order.
    any_path: Vec<usize>,
}

impl PathIndex {
    /// Adds a policy, whose index is above those of the policies before.
    pub(super) fn add(&mut self, policy: usize, permissions: &Rule) {
        let Some(paths) = exact_paths(permissions) else {
            self.any_path.push(policy);
            return;
        };
        for path in paths {
            let policies = self.by_path.entry(path.into()).or_default();
            if policies.last() != Some(&policy) {
                policies.push(policy);
            }
        }
    }

    /// The policies that can match a path, in ascending order.
    pub(super) fn candidates(&self, url_path: &str) -> impl Iterator<Item = usize> {
        let of_path = self.by_path.get(url_path).map_or(&[][..], |policies| policies);
        let (mut of_path, mut of_any) = (of_path.iter().peekable(), self.any_path.iter().peekable());
        iter::from_fn(move || {
            let next = match (of_path.peek(), of_any.peek()) {
                (Some(a), Some(b)) if a < b => of_path.next(),
                (_, Some(_)) => of_any.next(),
                (_, None) => of_path.next(),
            };
            next.copied()
        })
    }
}

/// The paths without which a rule never matches; `None` if there are others.
fn exact_paths(rule: &Rule) -> Option<Vec<&str>> {
    match rule {
        Rule::UrlPath(matcher) if !matcher.ignore_case => match &matcher.pattern {
            StringPattern::Exact(path) => Some(vec![path]),
            StringPattern::Prefix(_)
            | StringPattern::Suffix(_)
            | StringPattern::Contains(_)
            | StringPattern::SafeRegex(_) => None,
        },
        Rule::Constant(false) => Some(Vec::new()),
        Rule::All(rules) => rules.iter().filter_map(exact_paths).min_by_key(Vec::len),
        Rule::AnyOf(rules) => {
            let mut all = Vec::new();
            for rule in rules {
                all.extend(exact_paths(rule)?);
            }
            Some(all)
        }
        Rule::UrlPath(_)
        | Rule::Constant(true)
        | Rule::Not(_)
        | Rule::Header(..)
        | Rule::LocalIp(_)
        | Rule::LocalPort(_)
        | Rule::LocalPorts(..)
        | Rule::PeerIp(_)
        | Rule::Authenticated(_) => None,
    }
}
