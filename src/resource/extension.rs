//! Extensions: configurations whose types are not fixed by the protocol.

use std::{any::Any, fmt, sync::Arc};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Context, Invalid};
use crate::base::Configuration;
pub use crate::base::Custom;

/// A parsed configuration of an extension: of an HTTP filter, a load balancing policy, or a plugin. An application
/// implements it for its own extensions, and adds these to a [`Registry`](super::Registry).
///
/// ```
/// use serde::Serialize;
/// use xdskit::resource::{Context, Extension, Invalid, Payload, Registry};
///
/// /// Endpoints by how far away they are.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct Nearest {
///     radius: f64,
/// }
///
/// impl Extension for Nearest {
///     const TYPE_NAME: &'static str = "example.lb.v1.Nearest";
///
///     fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         let Payload::Struct(settings) = payload else {
///             return Err(Invalid::new("must be a TypedStruct"));
///         };
///         let radius = settings.get("radius").and_then(|radius| radius.as_f64());
///         Ok(Self { radius: radius.ok_or(Invalid::field("radius", "must be a number"))? })
///     }
/// }
///
/// let registry = Registry::new().with_lb_policy::<Nearest>();
/// ```
pub trait Extension: fmt::Debug + PartialEq + Serialize + Send + Sync + Sized + 'static {
    /// The full name of the message, which follows the last slash of its type URL; for plugins of the bootstrap, the name
    /// of the plugin.
    const TYPE_NAME: &'static str;

    /// Parses and validates the configuration.
    ///
    /// # Errors
    /// The configuration is invalid: the path of the field within the message, and the reason.
    fn parse(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid>;
}

/// The contents of an extension point: a message, or a JSON object in place of one (`TypedStruct`).
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// The bytes of the message.
    Message(Bytes),
    /// The object.
    Struct(Map<String, Value>),
}

impl Payload {
    /// The bytes of the message, for types without a JSON form.
    ///
    /// # Errors
    /// The payload is an object.
    pub fn message(self) -> Result<Bytes, Invalid> {
        match self {
            Self::Message(bytes) => Ok(bytes),
            Self::Struct(_) => Err(Invalid::new("a TypedStruct is not supported for this type")),
        }
    }
}

impl Custom {
    /// Parses a configuration of a type that the application has registered.
    pub(super) fn parse<T: Extension>(payload: Payload, cx: &Context<'_>) -> Result<Self, Invalid> {
        T::parse(payload, cx).map(Self::new)
    }

    /// A configuration that is made in code.
    pub fn new<T: Extension>(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// The configuration, if it is of type `T`.
    pub fn get<T: Extension>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }
}

impl<T: Extension> Configuration for T {
    fn type_name(&self) -> &'static str {
        T::TYPE_NAME
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}
