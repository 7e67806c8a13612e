//! The interface of a type of HTTP filter.

use serde::Serialize;

use crate::resource::{Context, Extension, Invalid, Payload};

/// The configuration of a type of HTTP filter that the application handles, added with
/// [`Registry::with_http_filter`](crate::resource::Registry::with_http_filter). Filters that channels execute are a `ClientFilter` as
/// well.
///
/// ```
/// use serde::Serialize;
/// use xdskit::resource::{
///     Context, Extension, Invalid, Payload, Registry,
///     http_filter::{HttpFilterExtension, NoOverride, Sides},
/// };
///
/// /// Gives each request an id.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct RequestId;
///
/// impl Extension for RequestId {
///     const TYPE_NAME: &'static str = "example.filters.v1.RequestId";
///
///     fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         Ok(Self)
///     }
/// }
///
/// impl HttpFilterExtension for RequestId {
///     const SIDES: Sides = Sides::Client;
///     type Override = NoOverride;
/// }
///
/// let registry = Registry::new().with_http_filter::<RequestId>();
/// ```
pub trait HttpFilterExtension: Extension {
    /// Whose requests the filter handles (A39-1).
    const SIDES: Sides;

    /// Whether it ends the list of filters, as a router does (L18).
    const IS_TERMINAL: bool = false;

    /// What replaces its configuration for a part of the routes; may be `Self`. [`NoOverride`] if nothing does.
    type Override: Extension;
}

/// Whose requests a type of filter handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sides {
    /// A client's.
    Client,
    /// A server's.
    Server,
    /// Requests of clients and servers.
    Both,
}

/// The [`HttpFilterExtension::Override`] of filters that have none; there is no value of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NoOverride {}

impl Extension for NoOverride {
    const TYPE_NAME: &'static str = "";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::new("the filter cannot be overridden"))
    }
}
