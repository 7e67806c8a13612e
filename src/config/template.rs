//! Templates of the names of listeners.

use std::{fmt, sync::Arc};

use crate::name::{
    NameError, ResourceName,
    encoding::{self, encode_into},
};

/// A template of resource names: a text in which every `%s` stands for a value.
///
/// If the text starts with `xdstp:`, characters of the value that are not allowed in a URI's path are
/// percent-encoded; otherwise the value is inserted unchanged.
///
/// ```
/// use xdskit::config::Template;
///
/// assert_eq!(Template::parse("grpc/server?addr=%s")?.expand("[::]:80"), "grpc/server?addr=[::]:80");
/// let xdstp = Template::parse("xdstp://a/envoy.config.listener.v3.Listener/%s")?;
/// assert_eq!(xdstp.expand("[::]:80"), "xdstp://a/envoy.config.listener.v3.Listener/%5B::%5D:80");
/// # Ok::<(), xdskit::name::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Template {
    /// The template as it was written.
    text: Arc<str>,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// A text that starts with `xdstp:` and would not result in a name for any value.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let template = Self { text: Arc::from(text) };
        match ResourceName::parse(&template.expand("name")) {
            // The position is valid for the template, too: the text before the first `%s` is the same.
            Err(error) => Err(error),
            Ok(_) => Ok(template),
        }
    }

    /// The text of the template.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Replaces each `%s` with a value; a template without any is the result itself.
    pub fn expand(&self, value: &str) -> String {
        if !self.text.starts_with("xdstp:") {
            return self.text.replace(PLACEHOLDER, value);
        }
        let mut encoded = String::with_capacity(value.len());
        encode_into(&mut encoded, value, encoding::PATH);
        self.text.replace(PLACEHOLDER, &encoded)
    }

    /// `%s`: the value itself is the name.
    pub(crate) fn verbatim() -> Self {
        Self { text: Arc::from(PLACEHOLDER) }
    }

    /// The default template of an authority.
    pub(crate) fn of_authority(authority: &str) -> Self {
        let mut text = String::from("xdstp://");
        encode_into(&mut text, authority, encoding::AUTHORITY);
        text.push_str("/envoy.config.listener.v3.Listener/%s");
        Self { text: text.into() }
    }

    /// Whether all names from the template have this authority (A47-5).
    pub(crate) fn belongs_to(&self, authority: &str) -> bool {
        let rest = self.text.strip_prefix("xdstp://");
        let written = rest.and_then(|rest| rest.split_once('/')).map(|(written, _)| written);
        written
            // A placeholder there would let each target choose the authority.
            .filter(|written| !written.contains(PLACEHOLDER))
            // Decoded, since characters may be escaped that need not be.
            .is_some_and(|written| encoding::decode(written).is_ok_and(|decoded| decoded == authority))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What the target takes the place of.
const PLACEHOLDER: &str = "%s";
