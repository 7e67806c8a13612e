//! The resources that a client begins with.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use prost::Message;

use super::store::Store;
use crate::{
    base::Invalid,
    config::Bootstrap,
    error::{Escaped, short_type},
    name::ResourceName,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource as Wrapper},
        google::protobuf::Any,
    },
    resource::{
        Cluster, ClusterLoadAssignment, ExtensionConfig, Listener, Resource, ResourceType,
        RouteConfiguration, Runtime, ScopedRouteConfiguration, Secret, VirtualHost, services::WRAPPER,
    },
};

/// Resources that a client serves until a management server has answered: a start without a server.
///
/// Set by `ClientBuilder::initial_resources`. A watch of such a name, and with it a resolution and a channel, has the resource at
/// once, with a warning and with [`ResourceSource::Initial`](crate::ResourceSource::Initial). The names are requested from servers as
/// all others are, without a version. The first answer of the active server of its authority replaces an initial resource for good:
///
/// | answer | effect |
/// |---|---|
/// | the resource | it replaces the initial one |
/// | a rejected resource (NACK) | the initial one stays, with the error as the warning, unless the server has `fail_on_data_errors` |
/// | a removal, or the error `NOT_FOUND` | there is no resource |
/// | another error | the initial one stays, with the error as the warning |
/// | responses of the type without it, until its does-not-exist timer ends | there is no resource |
/// | no response of the type at all | the initial one stays, with an error as the warning |
///
/// A response with all resources of a type (state of the world, listeners and clusters) replaces all initial ones of the type and
/// authority that nobody watches. Watches of collections have no initial resources.
///
/// ```
/// use xdskit::{client::InitialResources, resource::Cluster};
///
/// // `shop`, as an encoded message: `name` is field 1.
/// let initial = InitialResources::new().with::<Cluster>(b"\x0a\x04shop".as_slice());
/// assert_eq!(initial.len(), 1);
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct InitialResources {
    given: Vec<Given>,
}

/// A resource, as it was given.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) ty: ResourceType,
    /// Its name, unless that is in the message.
    name: Option<Box<str>>,
    pub(super) bytes: Bytes,
}

impl InitialResources {
    /// No resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, as an encoded message, whose name is the one in it. A later one of the same type and name replaces it.
    #[must_use]
    pub fn with<T: Resource>(mut self, message: impl Into<Bytes>) -> Self {
        self.given.push(Given { ty: ResourceType::of::<T>(), name: None, bytes: message.into() });
        self
    }

    /// Adds a resource with a name that is not the one in the message, such as an `xdstp://` name.
    #[must_use]
    pub fn with_name<T: Resource>(mut self, name: impl Into<String>, message: impl Into<Bytes>) -> Self {
        let name = Some(name.into().into());
        self.given.push(Given { ty: ResourceType::of::<T>(), name, bytes: message.into() });
        self
    }

    /// Adds the resources of an encoded `DiscoveryResponse`, such as one that was saved. They are of gRPC's and Envoy's types in v3, of
    /// several types too, and may be wrapped with their names in `envoy.service.discovery.v3.Resource`.
    ///
    /// # Errors
    /// The response is no such message, or a resource is of another type.
    pub fn with_response(mut self, response: &[u8]) -> Result<Self, Invalid> {
        let not_read = |error: prost::DecodeError| Invalid::new(format!("not a DiscoveryResponse: {error}"));
        for (any, index) in
            DiscoveryResponse::decode(response).map_err(not_read)?.resources.into_iter().zip(0..)
        {
            let given = Given::of_any(any).map_err(|invalid| invalid.at_index("resources", index))?;
            self.given.push(given);
        }
        Ok(self)
    }

    /// Adds the resources of a `DiscoveryResponse` in JSON, as in the files of [file sources](crate::config::ConfigSource): each
    /// has its type in `@type`.
    ///
    /// # Errors
    /// The response is no such message, or a resource is of another type.
    #[cfg(feature = "json")]
    pub fn with_json(self, document: &str) -> Result<Self, Invalid> {
        let read = crate::format::read(document.as_bytes(), crate::format::Format::Json);
        let read = read.map_err(|error| Invalid::new(error.to_string()))?;
        if !read.lists_resources {
            return Err(Invalid::field("resources", "missing"));
        }
        self.with_response(&read.message)
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// A new store with these resources. A client has checked them before; others are left out.
    pub(super) fn store(&self, bootstrap: &Bootstrap) -> Store {
        let mut store = Store::new(bootstrap.node().id.as_str().into(), bootstrap.additions());
        for given in &self.given {
            let Ok(name) = given.resource_name(bootstrap) else { continue };
            let name = store.additions().add_to(&name);
            let authority = name.authority().map(Arc::from);
            store.initial_mut().insert(given.ty.type_url(), name.canonical(), authority, given.bytes.clone());
        }
        store
    }

    /// The resources with their names, if each has one of a configured authority, and all of them are within the limits. Their
    /// content is checked by who can parse them.
    pub(super) fn named(&self, bootstrap: &Bootstrap) -> Result<Vec<(&Given, ResourceName)>, Invalid> {
        let bytes: usize = self.given.iter().map(|given| given.bytes.len()).sum();
        if self.given.len() > MAX_RESOURCES || bytes > MAX_BYTES {
            let reason = format!(
                "{} resources of {bytes} bytes are more than {MAX_RESOURCES}, or than {MAX_BYTES} bytes",
                self.given.len()
            );
            return Err(Invalid::new(reason));
        }
        self.given.iter().map(|given| Ok((given, given.resource_name(bootstrap)?))).collect()
    }
}

impl Given {
    /// A resource of a response, which may be wrapped.
    fn of_any(any: Any) -> Result<Self, Invalid> {
        let (any, name) = match any.type_url == WRAPPER {
            true => {
                let wrapper = Wrapper::decode(&*any.value);
                let wrapper = wrapper.map_err(|error| Invalid::new(format!("not a Resource: {error}")))?;
                let name = Some(wrapper.name).filter(|name| !name.is_empty()).map(Box::from);
                (wrapper.resource.ok_or_else(|| Invalid::field("resource", "unset"))?, name)
            }
            false => (any, None),
        };
        let ty = TYPES.iter().find(|ty| ty.type_url() == any.type_url).copied();
        let ty =
            ty.ok_or_else(|| Invalid::new(format!("unknown type {:?}", Escaped(&any.type_url).to_string())))?;
        Ok(Self { ty, name, bytes: any.value })
    }

    /// The name, which is that of one resource of a configured authority.
    fn resource_name(&self, bootstrap: &Bootstrap) -> Result<ResourceName, Invalid> {
        let text = match &self.name {
            Some(name) => (**name).into(),
            None => self.ty.name(&self.bytes).map_err(|invalid| self.at("", invalid))?,
        };
        if text.is_empty() {
            return Err(self.at("", Invalid::new("it has no name")));
        }
        let name =
            ResourceName::parse(&text).map_err(|error| self.at(&text, Invalid::new(error.to_string())))?;
        if name.is_glob() || name.is_list() || name.directives().is_some() || &*text == "*" {
            return Err(self.at(&text, Invalid::new("the name is not that of one resource")));
        }
        if let Some(authority) = name.authority() {
            let known = bootstrap.authority(authority);
            known.map_err(|error| self.at(&text, Invalid::new(error.to_string())))?;
        }
        Ok(name)
    }

    /// The resource is invalid: its type and name precede the path of the field.
    pub(super) fn at(&self, name: &str, invalid: Invalid) -> Invalid {
        invalid.at(&format!("{} {name:?}", short_type(self.ty.type_url())))
    }
}

/// By what they contain. Parsers of types are not compared.
impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        let is_same_type = self.ty.type_url() == other.ty.type_url();
        is_same_type && self.name == other.name && self.bytes == other.bytes
    }
}

/// The number alone: contents may be secrets.
impl fmt::Debug for InitialResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitialResources").field("len", &self.given.len()).finish_non_exhaustive()
    }
}

/// The types that a response may have.
const TYPES: [ResourceType; 9] = [
    ResourceType::of::<Listener>(),
    ResourceType::of::<RouteConfiguration>(),
    ResourceType::of::<ScopedRouteConfiguration>(),
    ResourceType::of::<VirtualHost>(),
    ResourceType::of::<Cluster>(),
    ResourceType::of::<ClusterLoadAssignment>(),
    ResourceType::of::<ExtensionConfig>(),
    ResourceType::of::<Secret>(),
    ResourceType::of::<Runtime>(),
];

/// The maximum number of initial resources.
const MAX_RESOURCES: usize = 100_000;

/// The maximum size of all initial resources: that of a message from a server by default.
const MAX_BYTES: usize = 64 << 20;
