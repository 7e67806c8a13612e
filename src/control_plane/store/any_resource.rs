//! A resource of any type, with its attributes.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;

use super::locator::locator;
use crate::{
    control_plane::type_url,
    name::{NameError, NamePart, ResourceName},
};

/// A resource of a management server: its type, its name and its encoded message.
///
/// The messages of the protocol's own resource types in [`crate::pb`] convert to it, and so do the builders of
/// `xdskit::testing::resources`:
///
/// ```
/// use std::time::Duration;
/// use xdskit::{control_plane::AnyResource, pb::envoy::config::cluster::v3::Cluster};
///
/// let resource: AnyResource = Cluster { name: "shop".into(), ..Cluster::default() }.into();
/// assert_eq!(resource.name(), "shop");
/// let resource = resource.with_name("xdstp://mesh/envoy.config.cluster.v3.Cluster/shop").with_ttl(Duration::from_secs(30));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AnyResource {
    /// The type of the resource, which in a redirect differs from that of the message.
    pub(super) type_url: Arc<str>,
    /// The name as it was written.
    pub(super) name: Arc<str>,
    /// The message, encoded.
    pub(super) bytes: Bytes,
    /// What the resource has beside its message.
    pub(super) attributes: Attributes,
}

/// The attributes of a resource beside its bytes; usually none, so they are kept out of line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attributes(Option<Arc<Values>>);

/// The attributes of a resource that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    /// The time to live.
    pub(super) ttl: Option<Duration>,
    /// Whether the name differs from that in the message.
    pub(super) renamed: bool,
    /// Further names of the resource.
    pub(super) aliases: Vec<Arc<str>>,
    /// The type of the message, if it is not that of the resource.
    pub(super) body_type_url: Option<Arc<str>>,
    /// The version, in place of the counter of the type.
    pub(super) version: Option<Arc<str>>,
    /// Whether wildcards exclude it.
    pub(super) unlisted: bool,
}

impl AnyResource {
    /// A resource of any type, with the bytes of its message, which need not be valid.
    pub fn new(type_url: impl Into<Arc<str>>, name: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        let (type_url, name, bytes) = (type_url.into(), name.into(), bytes.into());
        Self { type_url, name, bytes, attributes: Attributes::default() }
    }

    /// A resource of any type, with its message.
    pub fn encode(type_url: impl Into<Arc<str>>, name: impl Into<Arc<str>>, message: &impl Message) -> Self {
        Self::new(type_url, name, message.encode_to_vec())
    }

    /// A redirect: the location of another resource in place of this one.
    ///
    /// # Errors
    /// `target` is not an `xdstp:` name.
    pub fn redirect(
        type_url: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        target: &str,
    ) -> Result<Self, NameError> {
        let name_of_target = ResourceName::parse_received(target)?;
        let message = locator(&name_of_target).ok_or_else(|| {
            NameError::new(target, NamePart::Scheme, 0, "only xdstp: names can be redirected to")
        })?;
        Ok(Self::encode(type_url, name, &message).with_body_type(LOCATOR))
    }

    /// Sets the type URL of the message, if it is not that of the resource, as in a redirect. Such a resource is
    /// always wrapped.
    #[must_use]
    pub fn with_body_type(mut self, type_url: impl Into<Arc<str>>) -> Self {
        let type_url = type_url.into();
        self.attributes.edit(|values| values.body_type_url = Some(type_url));
        self
    }

    /// Sets another name for the resource, in place of the one in its message.
    ///
    /// It is in the wrapper of the resource, so the resource is wrapped in the state-of-the-world variant, too.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self.attributes.edit(|values| values.renamed = true);
        self
    }

    /// Sets the time to live: the time after which clients drop the resource unless the server confirms it, which a
    /// [`ControlPlane`](super::super::ControlPlane) does several times within it. It is truncated to the range and
    /// the nanoseconds of the protocol, at most 315,576,000,000 s.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.attributes.edit(|values| values.ttl = Some(ttl.min(MAX_TTL)));
        self
    }

    /// Adds names by which clients may subscribe to the resource; a response has its own name. Aliases exist in the
    /// incremental variant only.
    #[must_use]
    pub fn with_aliases<A: Into<Arc<str>>>(mut self, aliases: impl IntoIterator<Item = A>) -> Self {
        let aliases = aliases.into_iter().map(Into::into).collect();
        self.attributes.edit(|values| values.aliases = aliases);
        self
    }

    /// Sets a version for the resource, in place of the counter of its type. It must change with the bytes: a client
    /// with this initial version is not sent the resource again.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<Arc<str>>) -> Self {
        let version = version.into();
        self.attributes.edit(|values| values.version = Some(version));
        self
    }

    /// Sets whether wildcard subscriptions include the resource, by default yes. If not, it is sent for subscriptions to its name
    /// or to its glob collection alone.
    #[must_use]
    pub fn with_listed(mut self, listed: bool) -> Self {
        self.attributes.edit(|values| values.unlisted = !listed);
        self
    }

    /// The type URL.
    pub fn type_url(&self) -> &str {
        &self.type_url
    }

    /// The name for subscriptions.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of the message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// The bytes of secrets are omitted.
impl fmt::Debug for AnyResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { type_url, name, bytes, attributes } = self;
        let bytes: &dyn fmt::Debug = if **type_url == *type_url::SECRET { &"[hidden]" } else { bytes };
        let mut shown = f.debug_struct("AnyResource");
        shown.field("type_url", type_url).field("name", name).field("bytes", bytes);
        shown.field("attributes", attributes).finish()
    }
}

impl Attributes {
    /// Returns the attributes, if the resource has any.
    pub(super) fn values(&self) -> Option<&Values> {
        self.0.as_deref()
    }

    pub(super) fn ttl(&self) -> Option<Duration> {
        self.values().and_then(|values| values.ttl)
    }

    pub(super) fn aliases(&self) -> &[Arc<str>] {
        self.values().map_or(&[], |values| &values.aliases)
    }

    /// Changes the attributes.
    fn edit(&mut self, edit: impl FnOnce(&mut Values)) {
        edit(Arc::make_mut(self.0.get_or_insert_default()));
    }
}

/// The message of a redirect, which stands in place of the resource.
const LOCATOR: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";
/// The maximum duration in protobuf.
const MAX_TTL: Duration = Duration::from_secs(315_576_000_000);
