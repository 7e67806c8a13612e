//! Names of resources: old-style ones, which are opaque strings, and structured `xdstp:` ones.
//!
//! An `xdstp:` name contains the authority of the resource, its type, and context parameters that are part of its identity.
//! Names that differ only in the order of their parameters, or in the spelling of their escapes, are equal, and have the same
//! canonical string. Requests have the name as it was written, since many servers compare the text of names.
//!
//! ```
//! use xdskit::name::ResourceName;
//!
//! let name = ResourceName::parse("xdstp://mesh.example/envoy.config.listener.v3.Listener/shop?zone=b&env=prod")?;
//! assert_eq!(name.authority(), Some("mesh.example"));
//! assert_eq!(name.resource_type(), Some("envoy.config.listener.v3.Listener"));
//! assert_eq!(name.id(), "shop");
//! assert_eq!(
//!     name.as_str(),
//!     "xdstp://mesh.example/envoy.config.listener.v3.Listener/shop?env=prod&zone=b",
//! );
//!
//! let opaque = ResourceName::parse("outbound|80||shop.default.svc.cluster.local")?;
//! assert_eq!(opaque.authority(), None);
//!
//! let error = ResourceName::parse("xdstp://mesh.example").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "resource name \"xdstp://mesh.example\": resource type at byte 20: missing",
//! );
//! # Ok::<(), xdskit::name::NameError>(())
//! ```
//!
//! The format is that of the xDS proposal [TP1]; rules are cited as X1 to X24.
//!
//! [TP1]: https://github.com/cncf/xds/blob/main/proposals/TP1-xds-transport-next.md

use std::{
    borrow::Cow,
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

mod additions;
mod directive;
pub(crate) mod encoding;
mod error;
mod glob;
mod locator;
mod params;
mod rules;
mod spelling;
mod xdstp;

pub use self::{
    directive::Directives,
    error::{NameError, NamePart},
    params::ContextParams,
    xdstp::XdstpName,
};

pub(crate) use self::{additions::Additions, directive::is_entry_name, glob::glob_of};
use self::{rules::Rules, xdstp::SCHEME};

/// The name of a resource: an opaque string, or a parsed `xdstp:` name.
///
/// It is cheap to clone. Equality, order and hash are those of the canonical string and the directives.
#[derive(Clone)]
pub struct ResourceName {
    /// The string that equal names have in common, without directives; of an opaque name the name itself.
    canonical: Arc<str>,
    /// The name in requests, if it differs from the canonical string. `None` for opaque names, and for most others.
    spelling: Option<Arc<str>>,
    /// The parts, if it is an `xdstp:` name.
    xdstp: Option<Arc<XdstpName>>,
}

impl ResourceName {
    /// Parses a name from an application, a configuration or a resource.
    ///
    /// # Errors
    ///
    /// The name starts with `xdstp:`, and is malformed, has a duplicate context parameter, one whose key starts with `xds.`
    /// (these are set by the client), or an unknown or repeated directive. Any other string is an opaque name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::parse_with(text, Rules::Written)
    }

    /// Parses the name of a resource in a response. It may have the `xds.*` parameters of the request.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), without the rule for `xds.*`.
    pub fn parse_received(text: &str) -> Result<Self, NameError> {
        Self::parse_with(text, Rules::Received)
    }

    /// The canonical string of the name of a resource in a response. An opaque name is returned without an allocation.
    ///
    /// # Errors
    ///
    /// As [`parse_received`](Self::parse_received).
    pub fn canonicalize(text: &str) -> Result<Cow<'_, str>, NameError> {
        if !Self::has_xdstp_scheme(text) {
            return Ok(Cow::Borrowed(text));
        }
        let encoded = XdstpName::parse(text, Rules::Received, 0)?.encode();
        Ok(if encoded == text { Cow::Borrowed(text) } else { Cow::Owned(encoded) })
    }

    /// The canonical string without directives, which identifies the resource. See [`spelling`](Self::spelling) for the name in
    /// requests.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// The canonical string, shared.
    pub fn canonical(&self) -> Arc<str> {
        Arc::clone(&self.canonical)
    }

    /// The name in requests, without directives: as it was written, with the context parameters sorted, and with `%XX` for bytes
    /// that no URI may contain. Of several spellings of one resource, requests have that of its first watch.
    ///
    /// ```
    /// use xdskit::name::ResourceName;
    ///
    /// let name = ResourceName::parse("xdstp://a/envoy.config.listener.v3.Listener/shop%3A8000?b=1&a=2")?;
    /// assert_eq!(name.spelling(), "xdstp://a/envoy.config.listener.v3.Listener/shop%3A8000?a=2&b=1");
    /// assert_eq!(name.as_str(), "xdstp://a/envoy.config.listener.v3.Listener/shop:8000?a=2&b=1");
    /// # Ok::<(), xdskit::name::NameError>(())
    /// ```
    pub fn spelling(&self) -> &str {
        self.spelling.as_ref().unwrap_or(&self.canonical)
    }

    /// The spelling of the name as it was given, shared; `None` if it is the canonical string. Entries store it beside the
    /// canonical name, since most have none.
    pub(crate) fn other_spelling(&self) -> Option<Arc<str>> {
        self.spelling.clone()
    }

    /// The authority of an `xdstp:` name, which may be empty; `None` for an opaque name.
    pub fn authority(&self) -> Option<&str> {
        self.xdstp().map(XdstpName::authority)
    }

    /// The resource type of an `xdstp:` name, such as `envoy.config.listener.v3.Listener`; `None` for an opaque name.
    pub fn resource_type(&self) -> Option<&str> {
        self.xdstp().map(XdstpName::resource_type)
    }

    /// The id of an `xdstp:` name, decoded; for an opaque name, the whole name.
    pub fn id(&self) -> &str {
        self.xdstp().map_or(&self.canonical, XdstpName::id)
    }

    /// The context parameters of an `xdstp:` name; `None` for an opaque name.
    pub fn context_params(&self) -> Option<&ContextParams> {
        self.xdstp().map(XdstpName::context_params)
    }

    /// The directives, if there are any.
    pub fn directives(&self) -> Option<&Directives> {
        self.xdstp().map(XdstpName::directives).filter(|directives| !directives.is_empty())
    }

    /// The parts of an `xdstp:` name; `None` for an opaque name.
    pub fn xdstp(&self) -> Option<&XdstpName> {
        self.xdstp.as_deref()
    }

    /// Whether this is an `xdstp:` name.
    pub fn is_xdstp(&self) -> bool {
        self.xdstp.is_some()
    }

    /// Whether this is a glob collection: an `xdstp:` name whose id ends in a segment `*`.
    pub fn is_glob(&self) -> bool {
        self.xdstp().is_some_and(XdstpName::is_glob)
    }

    /// Whether this is a list collection: an `xdstp:` name whose type ends in `Collection`, such as
    /// `envoy.config.listener.v3.ListenerCollection`.
    pub fn is_list(&self) -> bool {
        self.resource_type().is_some_and(|ty| ty.ends_with("Collection")) && !self.is_glob()
    }

    /// Whether this names many resources: a [glob](Self::is_glob) or a [list](Self::is_list).
    pub fn is_collection(&self) -> bool {
        self.is_glob() || self.is_list()
    }

    /// Whether `name` is a member of this glob: one non-empty segment in place of `*`, all else equal.
    pub fn matches(&self, name: &Self) -> bool {
        self.xdstp().zip(name.xdstp()).is_some_and(|(glob, name)| glob.is_glob_of(name))
    }

    /// The glob of which this name would be a member, so that members find their collection by one lookup.
    pub fn enclosing_glob(&self) -> Option<Self> {
        let xdstp = self.xdstp()?;
        let id = glob::enclosing(xdstp.id())?;
        Some(Self::from_xdstp(xdstp.without_directives().with_id(id)))
    }

    /// This name with other context parameters; an opaque name is unchanged.
    pub fn with_context_params(&self, params: ContextParams) -> Self {
        let Some(xdstp) = self.xdstp() else { return self.clone() };
        let spelling = spelling::with_params(self.spelling(), &params);
        Self::from_xdstp(xdstp.with_params(params)).spelled(spelling)
    }

    /// This name with an attribute of the resource as the context parameter `xds.resource.<attribute>`; an opaque name is
    /// unchanged.
    ///
    /// ```
    /// use xdskit::name::ResourceName;
    ///
    /// let name = ResourceName::parse("xdstp://a/envoy.config.listener.v3.Listener/in")?;
    /// let name = name.with_resource_attribute("listening_address", "10.0.0.1:80");
    /// assert_eq!(
    ///     name.as_str(),
    ///     "xdstp://a/envoy.config.listener.v3.Listener/in?xds.resource.listening_address=10.0.0.1:80",
    /// );
    /// # Ok::<(), xdskit::name::NameError>(())
    /// ```
    #[must_use]
    pub fn with_resource_attribute(&self, attribute: &str, value: &str) -> Self {
        let Some(params) = self.context_params() else { return self.clone() };
        self.with_context_params(params.composed(&ContextParams::default(), &[], &[(attribute, value)]))
    }

    /// The name of a part of this resource, as a resource of another type: one segment longer, and without
    /// directives. That of an opaque name is an opaque name.
    ///
    /// The server of virtual hosts on demand knows them by such names. No document specifies the form for `xdstp:` names.
    pub(crate) fn part(&self, resource_type: &str, segment: &str) -> Self {
        match self.xdstp() {
            Some(xdstp) => {
                let part = Self::from_xdstp(xdstp.part(resource_type, segment));
                match spelling::part(self.spelling(), resource_type, segment) {
                    Some(spelling) => part.spelled(spelling),
                    None => part,
                }
            }
            None => Self::opaque(format!("{}/{segment}", self.canonical).into()),
        }
    }

    /// This name without its alternative. The watch of the primary name uses it, while the alternative has a watch of its own.
    pub(crate) fn without_alt(&self) -> Self {
        match &self.xdstp {
            Some(xdstp) => Self { xdstp: Some(Arc::new(xdstp.without_alt())), ..self.clone() },
            None => self.clone(),
        }
    }

    /// This name without its directives, which identifies the resource.
    pub fn without_directives(&self) -> Self {
        match self.xdstp().filter(|xdstp| !xdstp.directives().is_empty()) {
            Some(xdstp) => Self { xdstp: Some(Arc::new(xdstp.without_directives())), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Like [`parse`](Self::parse), for shared text, which an opaque name does not copy. The watch, the entry and the resource
    /// then share one allocation for the name.
    pub(crate) fn parse_shared(text: &Arc<str>) -> Result<Self, NameError> {
        match Self::has_xdstp_scheme(text) {
            true => Self::parse(text),
            false => Ok(Self::opaque(text.clone())),
        }
    }

    /// Parses a name by some rules.
    fn parse_with(text: &str, rules: Rules) -> Result<Self, NameError> {
        if Self::has_xdstp_scheme(text) {
            Self::parse_xdstp(text, rules, 0)
        } else {
            Ok(Self::opaque(Arc::from(text)))
        }
    }

    /// Parses an `xdstp:` name; `depth` is the number of names of which it is an alternative. The depth limits recursion, as
    /// `MAX_ALT_DEPTH` says.
    fn parse_xdstp(text: &str, rules: Rules, depth: usize) -> Result<Self, NameError> {
        let xdstp = XdstpName::parse(text, rules, depth)?;
        // Directives are not a part of it: they are never sent.
        let spelling = spelling::of(text, xdstp.context_params());
        Ok(Self::from_xdstp(xdstp).spelled(spelling))
    }

    /// A name without structure.
    fn opaque(text: Arc<str>) -> Self {
        Self { canonical: text, spelling: None, xdstp: None }
    }

    /// A name of these parts. It is spelled canonically, as nobody has written it.
    fn from_xdstp(xdstp: XdstpName) -> Self {
        Self { canonical: Arc::from(xdstp.encode()), spelling: None, xdstp: Some(Arc::new(xdstp)) }
    }

    /// The name as it is written in requests.
    fn spelled(self, spelling: String) -> Self {
        let spelling = (*spelling != *self.canonical).then(|| Arc::from(spelling));
        Self { spelling, ..self }
    }

    /// Whether a text is an `xdstp:` name. Without the slashes of the scheme: a mistyped `xdstp:/a/T/x` is an error, and must
    /// not be requested as an opaque name that no server has.
    fn has_xdstp_scheme(text: &str) -> bool {
        text.starts_with("xdstp:")
    }
}

impl PartialEq for ResourceName {
    fn eq(&self, other: &Self) -> bool {
        // Not by the spelling: two spellings are one resource, and share its subscription (X4).
        self.canonical == other.canonical && self.directives() == other.directives()
    }
}

impl Eq for ResourceName {}

impl Hash for ResourceName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical.hash(state);
        self.directives().hash(state);
    }
}

impl PartialOrd for ResourceName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.canonical.cmp(&other.canonical).then_with(|| self.directives().cmp(&other.directives()))
    }
}

/// The canonical string with the directives, if there are any.
impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)?;
        match self.directives() {
            Some(directives) => {
                let mut out = String::new();
                directives.encode_into(&mut out);
                f.write_str(&out)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceName({:?})", self.to_string())
    }
}

#[cfg(test)]
mod tests;
