//! The directives in the fragment of a name.

use super::{
    ResourceName,
    encoding::{self, encode_into},
    rules::{Rules, unsupported_scheme},
};

/// The directives of an `xdstp:` name: instructions to the client on how to obtain the resource. They are not part of the
/// identity of the resource and never sent to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Directives {
    /// The name to use if the resource does not exist. It may have an alternative in turn.
    alt: Option<ResourceName>,
    /// The entry of a list collection, decoded.
    entry: Option<String>,
}

impl Directives {
    /// `alt=`: the alternative name, which is used while the source of this one is unreachable.
    pub fn alt(&self) -> Option<&ResourceName> {
        self.alt.as_ref()
    }

    /// `entry=`: the name of an inline entry of the list collection.
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// Whether there are no directives.
    pub fn is_empty(&self) -> bool {
        self.alt.is_none() && self.entry.is_none()
    }

    /// The directives but the alternative.
    ///
    /// The name without its alternative may be one of an inline entry, which is still selected by `entry=`.
    pub(super) fn without_alt(&self) -> Self {
        Self { alt: None, entry: self.entry.clone() }
    }

    /// Appends `#alt=…,entry=…`, or nothing.
    pub(super) fn encode_into(&self, out: &mut String) {
        let mut separator = '#';
        if let Some(alt) = &self.alt {
            out.push_str("#alt=");
            encode_into(out, &alt.to_string(), encoding::DIRECTIVE);
            separator = ',';
        }
        if let Some(entry) = &self.entry {
            out.push(separator);
            out.push_str("entry=");
            encode_into(out, entry, encoding::DIRECTIVE);
        }
    }

    /// Parses the text after `#`. An error consists of the position (in bytes from the start of `text`) and the
    /// reason.
    ///
    /// `depth` counts the names around this one, since an alternative is parsed by recursion.
    pub(super) fn parse(text: &str, rules: Rules, depth: usize) -> Result<Self, (usize, String)> {
        let mut directives = Self::default();
        let mut at = 0;
        // A comma in a value is escaped. An empty text has no directives, where `split` yields one empty part.
        for part in text.split(',').filter(|_| !text.is_empty()) {
            directives.parse_one(part, rules, depth).map_err(|(offset, reason)| (at + offset, reason))?;
            at += part.len() + 1;
        }
        Ok(directives)
    }

    /// Parses a directive. An error has its position in the text.
    fn parse_one(&mut self, part: &str, rules: Rules, depth: usize) -> Result<(), (usize, String)> {
        // A directive without a value is left to the checks of its key, whose errors name it.
        let (key, raw) = part.split_once('=').unwrap_or((part, ""));
        let start = part.len() - raw.len();
        let value = encoding::decode(raw).map_err(|e| (start + e.at, e.reason.to_owned()))?;
        // X10: an unknown directive cannot be skipped, since it may change where the resource is.
        match key {
            "alt" if self.alt.is_some() => Err(twice(key)),
            "alt" => {
                let alt = parse_alt(&value, rules, depth).map_err(|reason| (start, reason))?;
                self.alt = Some(alt);
                Ok(())
            }
            "entry" if self.entry.is_some() => Err(twice(key)),
            "entry" => {
                // The specification restricts names of entries; what a server sends in spite of that is compared as it is.
                if rules == Rules::Written && !is_entry_name(&value) {
                    let reason = format!("entry {value:?} is not a name of letters, digits and `_-./~:`");
                    return Err((start, reason));
                }
                self.entry = Some(value.into_owned());
                Ok(())
            }
            unknown => Err((0, format!("unknown directive {unknown:?}"))),
        }
    }
}

/// Parses the name of an alternative, which may have one itself.
fn parse_alt(value: &str, rules: Rules, depth: usize) -> Result<ResourceName, String> {
    if depth >= MAX_ALT_DEPTH {
        return Err(format!("more than {MAX_ALT_DEPTH} alternatives inside each other"));
    }
    if value.is_empty() {
        return Err("alt is empty".into());
    }
    if let Some(scheme) = unsupported_scheme(value) {
        return Err(format!("alt {value:?}: {scheme} is not supported"));
    }
    // An old-style name, of the servers without an authority.
    if !ResourceName::has_xdstp_scheme(value) {
        return Ok(ResourceName::opaque(value.into()));
    }
    ResourceName::parse_xdstp(value, rules, depth + 1)
        .map_err(|e| format!("alt: {} at byte {}: {}", e.part(), e.position(), e.reason()))
}

/// The error of a directive that is there twice.
fn twice(key: &str) -> (usize, String) {
    (0, format!("directive `{key}` occurs twice"))
}

/// `^[0-9a-zA-Z_\-\./~:]+$`
///
/// The specification gives this expression for names of inline entries in a list; `#entry=` has the same.
pub(crate) fn is_entry_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./~:".contains(&b))
}

/// The maximum nesting of alternatives. Each level doubles the escapes of the one before, so deep ones are not
/// written by hand; without a limit a hostile name could exhaust the stack.
const MAX_ALT_DEPTH: usize = 16;
