//! The plainest reading of the rules: all policies in turn, and each rule by itself.

use std::net::IpAddr;

use crate::{
    rbac::ConnectionFacts,
    resource::{
        http_filter::{
            RbacRules,
            rbac::{Permission, Principal, RbacAction},
        },
        matcher::{Cidr, HeaderCondition, HeaderMatcher, StringMatcher, StringPattern},
    },
};

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) authority: Option<&'static str>,
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) connection: ConnectionFacts,
}

/// Whether a request is allowed, and by which policy; `None` if it is refused.
pub(super) fn decide(rules: &RbacRules, request: &Request) -> Option<(bool, Option<String>)> {
    let mut read = Vec::new();
    for policy in &rules.policies {
        policy.permissions.iter().for_each(|permission| headers_of_permission(permission, &mut read));
        policy.principals.iter().for_each(|principal| headers_of_principal(principal, &mut read));
    }
    if read.iter().any(|name| !is_text(name, request)) {
        return None;
    }
    let matched = rules.policies.iter().find(|policy| {
        policy.permissions.iter().any(|permission| has_permission(permission, request))
            && policy.principals.iter().any(|principal| is_principal(principal, request))
    });
    let is_allow = rules.action == RbacAction::Allow;
    Some((matched.is_some() == is_allow, matched.map(|policy| policy.name.to_string())))
}

fn has_permission(permission: &Permission, request: &Request) -> bool {
    let local = request.connection.local_address();
    match permission {
        Permission::Any => true,
        Permission::AndRules(rules) => !rules.iter().any(|rule| !has_permission(rule, request)),
        Permission::OrRules(rules) => rules.iter().any(|rule| has_permission(rule, request)),
        Permission::NotRule(rule) => !has_permission(rule, request),
        Permission::Header(matcher) => header_matches(matcher, request),
        Permission::UrlPath(matcher) => text_matches(matcher, url_path(&request.path)),
        Permission::DestinationIp(range) => is_in(range, local.ip()),
        Permission::DestinationPort(port) => *port == u32::from(local.port()),
        Permission::DestinationPortRange { start, end } => {
            *start <= i32::from(local.port()) && i32::from(local.port()) < *end
        }
        Permission::Metadata { invert } => *invert,
        Permission::RequestedServerName(matcher) => text_matches(matcher, ""),
    }
}

fn is_principal(principal: &Principal, request: &Request) -> bool {
    match principal {
        Principal::Any => true,
        Principal::AndIds(ids) => !ids.iter().any(|id| !is_principal(id, request)),
        Principal::OrIds(ids) => ids.iter().any(|id| is_principal(id, request)),
        Principal::NotId(id) => !is_principal(id, request),
        Principal::Authenticated { principal_name } => {
            let Some(tls) = request.connection.tls() else { return false };
            let Some(matcher) = principal_name else { return true };
            let mut names: Vec<&str> = tls.uri_sans().iter().map(|name| &**name).collect();
            if names.is_empty() {
                names = tls.dns_sans().iter().map(|name| &**name).collect();
            }
            if names.is_empty() {
                names = vec![tls.subject()];
            }
            names.into_iter().any(|name| text_matches(matcher, name))
        }
        Principal::DirectRemoteIp(range) => is_in(range, request.connection.peer_address().ip()),
        Principal::Header(matcher) => header_matches(matcher, request),
        Principal::UrlPath(matcher) => text_matches(matcher, url_path(&request.path)),
        Principal::Metadata { invert } => *invert,
    }
}

fn headers_of_permission(permission: &Permission, names: &mut Vec<String>) {
    if let Permission::AndRules(rules) | Permission::OrRules(rules) = permission {
        rules.iter().for_each(|rule| headers_of_permission(rule, names));
    } else if let Permission::NotRule(rule) = permission {
        headers_of_permission(rule, names);
    } else if let Permission::Header(matcher) = permission {
        names.push(matcher.name.to_ascii_lowercase());
    }
}

fn headers_of_principal(principal: &Principal, names: &mut Vec<String>) {
    if let Principal::AndIds(ids) | Principal::OrIds(ids) = principal {
        ids.iter().for_each(|id| headers_of_principal(id, names));
    } else if let Principal::NotId(id) = principal {
        headers_of_principal(id, names);
    } else if let Principal::Header(matcher) = principal {
        names.push(matcher.name.to_ascii_lowercase());
    }
}

/// The values of a header that is not one of the hop.
fn values<'a>(name: &str, request: &'a Request) -> Vec<&'a [u8]> {
    let of = |wanted: &str| -> Vec<&'a [u8]> {
        let headers = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        headers.map(|(_, value)| &value[..]).collect()
    };
    let is_of_hop = |value: &&[u8]| {
        let names = String::from_utf8_lossy(value).to_lowercase();
        names.split(',').any(|other| other.trim() == name)
    };
    match name.starts_with(':')
        || name == "te"
        || name == "connection"
        || of("connection").iter().any(is_of_hop)
    {
        true => Vec::new(),
        false => of(name),
    }
}

fn is_text(name: &str, request: &Request) -> bool {
    values(name, request).iter().all(|value| String::from_utf8(value.to_vec()).is_ok())
}

fn header_matches(matcher: &HeaderMatcher, request: &Request) -> bool {
    let name = matcher.name.to_ascii_lowercase();
    let value = match &*name {
        ":method" => Some(request.method.to_owned()),
        ":path" => Some(request.path.clone()),
        ":authority" => request.authority.map(str::to_owned),
        _ => {
            let values = values(&name, request);
            let texts = values.iter().map(|value| {
                let text = String::from_utf8_lossy(value).into_owned();
                if name.ends_with("-bin") { text.replace('=', "") } else { text }
            });
            (!values.is_empty()).then(|| texts.collect::<Vec<_>>().join(","))
        }
    };
    let holds = match (&matcher.condition, &value) {
        (HeaderCondition::Present(present), _) => value.is_some() == *present,
        (_, None) => return false,
        (HeaderCondition::Value(matcher), Some(value)) => text_matches(matcher, value),
        (HeaderCondition::Range { start, end }, Some(value)) => {
            let number: Option<i64> = value.parse().ok();
            number.is_some_and(|number| *start <= number && number < *end)
        }
    };
    holds != matcher.invert
}

fn text_matches(matcher: &StringMatcher, text: &str) -> bool {
    let fold = |text: &str| if matcher.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let text = fold(text);
    match &matcher.pattern {
        StringPattern::Exact(exact) => text == fold(exact),
        StringPattern::Prefix(prefix) => text.starts_with(&fold(prefix)),
        StringPattern::Suffix(suffix) => text.ends_with(&fold(suffix)),
        StringPattern::Contains(part) => text.contains(&fold(part)),
        StringPattern::SafeRegex(regex) => regex.matches(&text),
    }
}

fn url_path(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

/// Whether the first bits of an address are those of a range.
fn is_in(range: &Cidr, address: IpAddr) -> bool {
    let bits = |address: IpAddr| -> Vec<bool> {
        let bytes = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    };
    let (a, b) = (bits(range.address()), bits(address.to_canonical()));
    a.len() == b.len() && a[..usize::from(range.prefix_len())] == b[..usize::from(range.prefix_len())]
}
