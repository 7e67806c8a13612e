//! The parts of an `xdstp:` name.

use std::borrow::Cow;

use super::{
    NameError, NamePart,
    directive::Directives,
    encoding::{self, encode_into},
    glob,
    params::ContextParams,
    rules::Rules,
};

/// The parts of an `xdstp:` name, decoded:
/// `xdstp://[authority]/{resource type}/{id}?{context parameters}#{directives}`.
///
/// It has a parser of its own, since a URL parser would rewrite ids such as `/a/../b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct XdstpName {
    /// The authority, decoded: `a%2Fb` is one authority with a slash. Empty if there is none.
    authority: String,
    /// The type, which is never escaped.
    resource_type: String,
    /// The path after the type, without a leading slash; `/` and `%2F` are the same here.
    id: String,
    /// The context parameters.
    params: ContextParams,
    /// The directives in the fragment.
    directives: Directives,
}

impl XdstpName {
    /// The authority; empty when the name starts with `xdstp:///`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The full name of the resource's message, such as `envoy.config.listener.v3.Listener`: a type URL without
    /// `type.googleapis.com/`.
    pub fn resource_type(&self) -> &str {
        &self.resource_type
    }

    /// The id, without a leading `/`. Empty segments are kept; `%2F` in a name is the same as `/`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The context parameters.
    pub fn context_params(&self) -> &ContextParams {
        &self.params
    }

    /// The directives.
    pub fn directives(&self) -> &Directives {
        &self.directives
    }

    /// Whether the name is a glob collection: its id ends in a segment `*`.
    pub fn is_glob(&self) -> bool {
        glob::is_glob(&self.id)
    }

    /// Whether the name is a glob, and another name a member of it: the same authority, type and context parameters, and the
    /// same id except for one segment in place of `*` (rule X16).
    pub(super) fn is_glob_of(&self, name: &Self) -> bool {
        glob::matches(&self.id, &name.id)
            && self.authority == name.authority
            && self.resource_type == name.resource_type
            && self.params == name.params
    }

    /// Parses a name.
    ///
    /// Positions in errors are those in the whole text, also for parts that are parsed by themselves.
    pub(super) fn parse(text: &str, rules: Rules, depth: usize) -> Result<Self, NameError> {
        let parts = Parts::split(text)?;
        let decode = |part, raw: &str, start: usize| {
            encoding::decode(raw)
                .map(Cow::into_owned)
                .map_err(|e| NameError::new(text, part, start + e.at, e.reason))
        };
        let authority = decode(NamePart::Authority, parts.authority.0, parts.authority.1)?;
        let id = decode(NamePart::Id, parts.id.0, parts.id.1)?;
        let params = ContextParams::parse(parts.query.0, rules.reserved()).map_err(|(at, reason)| {
            NameError::new(text, NamePart::ContextParams, parts.query.1 + at, reason)
        })?;
        let directives = Directives::parse(parts.fragment.0, rules, depth).map_err(|(at, reason)| {
            NameError::new(text, NamePart::Directives, parts.fragment.1 + at, reason)
        })?;
        Ok(Self { authority, resource_type: parts.resource_type.to_owned(), id, params, directives })
    }

    /// The canonical string without directives: escapes as of rule X2, context parameters sorted.
    ///
    /// An empty id has no slash before it, so that a type alone is written back as it was read.
    pub(super) fn encode(&self) -> String {
        let mut out = String::from(SCHEME);
        encode_into(&mut out, &self.authority, encoding::AUTHORITY);
        out.push('/');
        out.push_str(&self.resource_type);
        if !self.id.is_empty() {
            out.push('/');
            encode_into(&mut out, &self.id, encoding::PATH);
        }
        self.params.encode_into(&mut out);
        out
    }

    /// Replaces the context parameters.
    pub(super) fn with_params(&self, params: ContextParams) -> Self {
        Self { params, ..self.clone() }
    }

    /// Replaces the id.
    pub(super) fn with_id(&self, id: String) -> Self {
        Self { id, ..self.clone() }
    }

    /// The name of a part: `segment` is appended to the id. The context parameters stay, since they are those of the whole
    /// resource.
    pub(super) fn part(&self, resource_type: &str, segment: &str) -> Self {
        let id = if self.id.is_empty() { segment.to_owned() } else { format!("{}/{segment}", self.id) };
        Self { resource_type: resource_type.to_owned(), id, ..self.without_directives() }
    }

    /// Removes the alternative.
    pub(super) fn without_alt(&self) -> Self {
        Self { directives: self.directives.without_alt(), ..self.clone() }
    }

    /// Removes all directives.
    pub(super) fn without_directives(&self) -> Self {
        Self { directives: Directives::default(), ..self.clone() }
    }
}

/// The raw parts of a name, each with its position in the text.
struct Parts<'a> {
    /// The authority.
    authority: (&'a str, usize),
    /// The type.
    resource_type: &'a str,
    /// The path after the type.
    id: (&'a str, usize),
    /// The context parameters.
    query: (&'a str, usize),
    /// The directives.
    fragment: (&'a str, usize),
}

impl<'a> Parts<'a> {
    /// Splits a text at the characters that separate parts.
    fn split(text: &'a str) -> Result<Self, NameError> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(NameError::new(text, NamePart::Scheme, 0, "does not start with `xdstp://`"));
        };
        // From the end to the beginning: an alternative in the fragment may contain `?` and `/`, and a context parameter `/`.
        let (rest, fragment) = split_off(rest, '#');
        let (rest, query) = split_off(rest, '?');
        let (authority, path) = split_off(rest, '/');
        let (resource_type, id) = split_off(path, '/');
        let type_at = SCHEME.len() + authority.len() + 1;
        check_type(text, resource_type, type_at)?;
        let query_at = SCHEME.len() + rest.len() + 1;
        Ok(Self {
            authority: (authority, SCHEME.len()),
            resource_type,
            id: (id, type_at + resource_type.len() + 1),
            query: (query, query_at),
            fragment: (fragment, text.len() - fragment.len()),
        })
    }
}

/// The type is never escaped, so it can only contain characters that need no escape.
///
/// The position of a missing type may be behind the end of the text, since there may be no slash.
fn check_type(text: &str, resource_type: &str, at: usize) -> Result<(), NameError> {
    if resource_type.is_empty() {
        return Err(NameError::new(text, NamePart::ResourceType, at.min(text.len()), "missing"));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match resource_type.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((offset, c)) => {
            let reason = format!("{c:?} cannot be part of it");
            Err(NameError::new(text, NamePart::ResourceType, at + offset, reason))
        }
        None => Ok(()),
    }
}

/// The text before and after the first separator.
fn split_off(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

pub(super) const SCHEME: &str = "xdstp://";
