//! The tokens by which the clients of a relay are known.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderMap, header};
use tonic::Status;
use xdskit::tool_support::{in_file, read_file};

/// Tokens of a file, one of which each request must have. Clones share them.
#[derive(Clone)]
pub struct Tokens {
    /// The file.
    path: Arc<Path>,
    /// The tokens that were read last.
    current: Arc<RwLock<List>>,
}

/// There is no `Debug`: tokens are secrets.
#[derive(PartialEq)]
struct List(Vec<String>);

impl Tokens {
    /// Reads a file with a token a line. Empty lines are skipped.
    pub fn read(path: &Path) -> Result<Self, String> {
        let list = List::read(path)?;
        Ok(Self { path: path.into(), current: Arc::new(RwLock::new(list)) })
    }

    /// Reads the file again, and returns whether its tokens have changed. If it cannot be used, the last ones stay.
    pub fn reload(&self) -> Result<bool, String> {
        let list = List::read(&self.path)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let has_changed = *current != list;
        *current = list;
        Ok(has_changed)
    }

    /// Checks the headers of a request.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, sent) = value.and_then(|value| value.split_once(' ')).unwrap_or_default();
        let tokens = self.current.read().unwrap_or_else(PoisonError::into_inner);
        // The time of a comparison does not depend on what the tokens have in common.
        let is_known =
            tokens.0.iter().fold(false, |known, token| known | is_equal(token.as_bytes(), sent.as_bytes()));
        match scheme.eq_ignore_ascii_case("bearer") && is_known {
            true => Ok(()),
            false => Err(Status::unauthenticated("authorization: a Bearer token of this relay is needed")),
        }
    }
}

impl List {
    /// Reads a file with a token per line.
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = read_file(TOKEN_FILE, path, MAX_FILE)?;
        let text = String::from_utf8(bytes).map_err(|_| in_file(TOKEN_FILE, path, &"not text in UTF-8"))?;
        let tokens: Vec<_> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        match tokens.is_empty() {
            true => Err(in_file(TOKEN_FILE, path, &"no token in it")),
            false => Ok(Self(tokens)),
        }
    }
}

/// Compares in a time that does not depend on where the texts differ, so that it does not help to guess a token.
fn is_equal(token: &[u8], sent: &[u8]) -> bool {
    token.len() == sent.len() && token.iter().zip(sent).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// The name of the option, for errors.
pub(super) const TOKEN_FILE: &str = "--token-file";
/// The maximum size of a file with tokens, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> Result<Tokens, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        Tokens::read(file.path())
    }

    #[test]
    fn cp19_a_request_needs_one_of_the_tokens() {
        let tokens = read("first\n\n  second \n").unwrap();
        let check = |value: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(value.map(|value| (header::AUTHORIZATION, value.parse().unwrap())));
            tokens.check(&headers).map_err(|status| status.code())
        };
        for good in ["Bearer first", "bearer second"] {
            assert_eq!(check(Some(good)), Ok(()));
        }
        for bad in [None, Some(""), Some("first"), Some("Basic first"), Some("Bearer "), Some("Bearer firs")]
        {
            assert_eq!(check(bad), Err(tonic::Code::Unauthenticated), "{bad:?}");
        }
        assert!(read("\n \n").err().unwrap().contains("no token in it"));
    }

    #[test]
    fn cp19_tokens_are_those_of_the_file_and_the_last_ones_while_it_cannot_be_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |content: &str| std::fs::write(file.path(), content).unwrap();
        write("first");
        let tokens = Tokens::read(file.path()).unwrap();
        let shared = tokens.clone();
        let is_known = |token: &str| {
            let value = format!("Bearer {token}").parse().unwrap();
            shared.check(&HeaderMap::from_iter([(header::AUTHORIZATION, value)])).is_ok()
        };
        assert_eq!(tokens.reload(), Ok(false));
        write("second\nthird");
        assert!(is_known("first"), "it was not read yet");
        assert_eq!(tokens.reload(), Ok(true));
        assert_eq!(["first", "second", "third"].map(is_known), [false, true, true]);
        write("");
        assert!(tokens.reload().unwrap_err().contains("no token in it"));
        assert!(is_known("second"));
    }
}
