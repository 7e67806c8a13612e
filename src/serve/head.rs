//! Heads of requests that are refused before they are routed.

use std::str;

use super::Refusal;
use crate::error::Code;

/// Checks that the path of a request begins with a slash.
///
/// # Errors
/// A path without one would match no rule by path, and still reach a service that is found without it.
pub(crate) fn check_path(path: &str) -> Result<(), Refusal> {
    // SV7.5
    match path.starts_with('/') {
        true => Ok(()),
        false => Err(Refusal::malformed(Code::Unimplemented, "malformed path")),
    }
}

/// The authority of a request, of its target (`:authority`) and the values of its headers `host`; `None` if it has neither.
///
/// # Errors
/// There are several hosts, or one that is no text.
pub(crate) fn authority<'a>(
    target: Option<&'a str>,
    mut hosts: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<&'a str>, Refusal> {
    // SV7.5, SV7.6
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::malformed(Code::Internal, "several host headers"));
    }
    let host = host.map(|host| {
        str::from_utf8(host).map_err(|_| Refusal::malformed(Code::Internal, "malformed host header"))
    });
    let host = host.transpose()?;
    Ok(target.or(host).filter(|authority| !authority.is_empty()))
}
