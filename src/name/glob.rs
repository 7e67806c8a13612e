//! Globs: `xdstp://authority/type/some/path/*` names all resources one segment below `some/path`.
//!
//! The wildcard stands for one whole segment at the end of the path, so that a name has one enclosing glob at most. Members are
//! found by a lookup of that name, however many globs are watched.

/// Whether the id ends in a segment `*`.
pub(super) fn is_glob(id: &str) -> bool {
    split_last(id).1 == "*"
}

/// Whether an id is one of the members of a glob with another id: the same except for one segment in place of `*`. A glob is
/// not a member of itself, and an empty segment is not one either.
pub(super) fn matches(glob: &str, id: &str) -> bool {
    let (path, star) = split_last(glob);
    let (parent, member) = split_last(id);
    star == "*" && member != "*" && !member.is_empty() && path == parent
}

/// The id of the only glob of which the id can be a member.
///
/// `None` for an empty last segment, and for a glob: neither is a member.
pub(super) fn enclosing(id: &str) -> Option<String> {
    let (parent, member) = split_last(id);
    (member != "*" && !member.is_empty()).then(|| format!("{parent}*"))
}

/// The only glob of which a canonical name can be a member, found without parsing the name.
///
/// It works on text, since it is called for resources that a server sends while a glob is watched.
pub(crate) fn glob_of(canonical: &str) -> Option<String> {
    // Ids escape `?`, so that the first one begins the parameters, whose values may contain slashes.
    let path_end = canonical.find('?').unwrap_or(canonical.len());
    let (path, params) = canonical.split_at(path_end);
    // The authority, the type, and the id.
    // A name that ends with its type has no segment that `*` could replace.
    path.strip_prefix("xdstp://")?.splitn(3, '/').nth(2)?;
    let (parent, member) = split_last(path);
    (member != "*" && !member.is_empty()).then(|| format!("{parent}*{params}"))
}

/// The id up to its last `/`, inclusive, and the segment after it.
fn split_last(id: &str) -> (&str, &str) {
    id.split_at(id.rfind('/').map_or(0, |slash| slash + 1))
}
