use std::{borrow::Cow, error::Error, fmt};

use crate::{
    escape::{Escaped, debug_as_message},
    wire::Malformed,
};

/// The reason why a resource is invalid, with the path of the field.
///
/// The path consists of the names of protobuf fields, with the indices of repeated fields:
/// `virtual_hosts[2].routes[0].match.safe_regex`. It is built from the innermost field outwards as the error is returned:
///
/// ```
/// use xdskit::resource::Invalid;
///
/// let inner = Invalid::new("unclosed group").at("regex").at("safe_regex").at("match");
/// let whole = inner.at_index("routes", 0).at_index("virtual_hosts", 2);
/// assert_eq!(whole.to_string(), "virtual_hosts[2].routes[0].match.safe_regex.regex: unclosed group");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The names of the fields, from the outermost to the innermost; empty for the whole resource.
    path: String,
    /// The reason, mostly a constant. Text of the server in it is escaped when it is shown, so that it is escaped once.
    reason: Cow<'static, str>,
}

impl Invalid {
    /// An error with a reason: lower case, without a full stop, and with the invalid value where it helps.
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    /// An error with a reason at `field`: a shorthand for [`new`](Self::new) and [`at`](Self::at).
    pub fn field(field: &str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(reason).at(field)
    }

    /// Appends to the reason.
    pub(crate) fn and(self, more: &str) -> Self {
        Self { reason: format!("{}{more}", self.reason).into(), ..self }
    }

    /// Prepends `field` to the path.
    #[must_use]
    pub fn at(mut self, field: &str) -> Self {
        if self.path.is_empty() {
            self.path.push_str(field);
        } else {
            self.path = format!("{field}.{}", self.path);
        }
        self
    }

    /// Prepends `field[index]` to the path.
    #[must_use]
    pub fn at_index(self, field: &str, index: usize) -> Self {
        self.at(&format!("{field}[{index}]"))
    }

    /// Prepends `field["key"]` to the path, for entries of a map.
    #[must_use]
    pub fn at_key(self, field: &str, key: &str) -> Self {
        self.at(&format!("{field}[{key:?}]"))
    }

    /// The path of the field; empty for the resource as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The reason without the path.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys of maps are text of the server, and the path has them.
        if !self.path.is_empty() {
            write!(f, "{}: ", Escaped(&self.path))?;
        }
        Escaped(&self.reason).fmt(f)
    }
}

debug_as_message!(Invalid);

impl Error for Invalid {}

impl From<Malformed> for Invalid {
    fn from(malformed: Malformed) -> Self {
        Self::new(format!("not a valid message: {malformed}"))
    }
}

impl From<prost::DecodeError> for Invalid {
    fn from(error: prost::DecodeError) -> Self {
        Self::new(format!("not a valid message: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_from_the_inside_out() {
        let e = Invalid::new("bad").at_key("config", "a b").at_index("filters", 3).at("chain");
        assert_eq!(e.path(), "chain.filters[3].config[\"a b\"]");
        assert_eq!(e.to_string(), "chain.filters[3].config[\"a b\"]: bad");
        assert_eq!(Invalid::new("bad").to_string(), "bad");
    }
}
