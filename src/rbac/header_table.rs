//! The headers that policies match, each looked up once for a request.

use std::borrow::Cow;

use super::{RequestFacts, decision::MalformedRequest};
use crate::resolve::RequestHeaders;

/// The headers of all rules of an RBAC, without duplicates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeaderTable(Vec<HeaderKey>);

/// The values of the headers of a table in a request; `None` for an absent header. Empty for a table without headers, so that
/// nothing is allocated then.
pub(super) type HeaderValues<'a> = Vec<Option<Cow<'a, str>>>;

/// Where the value of a header is found.
#[derive(Debug, Clone, PartialEq)]
enum HeaderKey {
    Method,
    Path,
    Authority,
    /// A header that counts as absent, whatever the request has: it concerns one hop alone, or is no header of requests.
    Hidden,
    /// A header by its name in lower case.
    Named(Box<str>),
}

impl HeaderTable {
    /// Returns the index of a header, which is added unless it is known.
    pub(super) fn index_of(&mut self, name: &str) -> usize {
        let key = HeaderKey::of(name);
        self.0.iter().position(|known| *known == key).unwrap_or_else(|| {
            self.0.push(key);
            self.0.len() - 1
        })
    }

    /// Whether a rule reads the path from a header.
    pub(super) fn has_path(&self) -> bool {
        self.0.contains(&HeaderKey::Path)
    }

    /// Reads the values of all headers.
    ///
    /// # Errors
    /// A value is not UTF-8. It is refused even if no policy would look at it for this request, so that it does not depend on the
    /// order of policies (SV9.9).
    pub(super) fn read<'a, 't>(
        &'t self,
        facts: &RequestFacts<'a>,
    ) -> Result<HeaderValues<'a>, MalformedRequest<'t>> {
        self.0.iter().map(|key| key.read(facts)).collect()
    }
}

impl HeaderKey {
    // SV9.5, SV9.6: names have no case, and `host` is the authority.
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match &*name {
            ":method" => Self::Method,
            ":path" => Self::Path,
            ":authority" | "host" => Self::Authority,
            _ if name.starts_with(':') || HOP_BY_HOP.contains(&&*name) => Self::Hidden,
            _ => Self::Named(name.into()),
        }
    }

    fn read<'a, 't>(
        &'t self,
        facts: &RequestFacts<'a>,
    ) -> Result<Option<Cow<'a, str>>, MalformedRequest<'t>> {
        Ok(match (self, facts.headers) {
            (Self::Method, _) => Some(facts.method.into()),
            (Self::Path, _) => Some(facts.path.into()),
            (Self::Authority, _) => facts.authority.map(Cow::Borrowed),
            (Self::Hidden, _) | (Self::Named(_), None) => None,
            (Self::Named(name), Some(headers)) if is_of_connection(name, headers) => None,
            (Self::Named(name), Some(headers)) => joined(name, headers)?,
        })
    }
}

/// Whether the header `connection` names a header, which then concerns this hop alone (SV9.7).
fn is_of_connection(name: &str, headers: &(dyn RequestHeaders + Sync)) -> bool {
    let mut is_named = false;
    headers.for_each_value("connection", &mut |value| {
        is_named |= value
            .split(|byte| *byte == b',')
            .any(|named| named.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
    });
    is_named
}

/// The values of a header, joined by commas (SV9.6). A single value, as almost always, is borrowed.
fn joined<'a, 't>(
    name: &'t str,
    headers: &'a (dyn RequestHeaders + Sync),
) -> Result<Option<Cow<'a, str>>, MalformedRequest<'t>> {
    let mut joined: Option<Cow<'a, str>> = None;
    let mut append = |part: &'a str| match &mut joined {
        None => joined = Some(part.into()),
        Some(values) => {
            let values = values.to_mut();
            values.push(',');
            values.push_str(part);
        }
    };
    let mut is_utf8 = true;
    headers.for_each_value(name, &mut |value| match str::from_utf8(value) {
        // A sender of binary headers may have joined several values, each with its padding.
        Ok(value) if name.ends_with("-bin") => {
            value.split(',').for_each(|part| append(part.trim_matches([' ', '\t']).trim_end_matches('=')));
        }
        Ok(value) => append(value),
        Err(_) => is_utf8 = false,
    });
    if is_utf8 { Ok(joined) } else { Err(MalformedRequest::HeaderNotUtf8(name)) }
}

/// Headers that concern one hop alone (SV9.7).
const HOP_BY_HOP: [&str; 9] = [
    "te",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "trailer",
    "proxy-authenticate",
    "proxy-authorization",
];
