//! Which types of filters there are: the crate's own, and those of the application.

use std::fmt;

use serde::{Serialize, Serializer};

#[cfg(feature = "channel")]
use super::client_filter::{ClientFilter, Execution};
use super::{
    BUILT_IN, Context, Custom, HttpFilterConfig, HttpFilterOverride, Invalid,
    extension::{HttpFilterExtension, Sides},
};
use crate::resource::{Extension, Payload};

/// The configuration of a filter that the application has registered. In JSON an object with its type name as key.
#[derive(Clone)]
pub struct CustomFilter {
    /// The configuration.
    config: Custom,
    /// The type of overrides; empty if there is none.
    override_type: &'static str,
    /// `None` if channels cannot execute it.
    #[cfg(feature = "channel")]
    execution: Option<Execution>,
}

/// Whose requests a listener is for (A39-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resource) enum Side {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// A type of filter.
#[derive(Clone, Copy)]
pub(in crate::resource) struct FilterType {
    /// The type of configurations.
    config_type: &'static str,
    /// Empty if there is none.
    override_type: &'static str,
    /// Where it can be used.
    sides: Sides,
    /// Whether it must be the last one.
    is_terminal: bool,
    /// Parses a configuration.
    parse: fn(Payload, &Context<'_>) -> Result<HttpFilterConfig, Invalid>,
    /// Parses an override.
    parse_override: fn(Payload, &Context<'_>) -> Result<HttpFilterOverride, Invalid>,
}

/// A built-in type of filter.
pub(super) trait BuiltIn: HttpFilterExtension {
    /// The part of the configuration that has an effect.
    type Effective;

    /// The effect of the configuration by itself; `None` if it has none.
    fn effective(&self) -> Option<&Self::Effective>;

    /// Its effect under an override.
    fn overridden<'a>(&'a self, setting: &'a Self::Override) -> Option<&'a Self::Effective>;
}

impl CustomFilter {
    /// The full name of the message that configures it.
    pub fn type_name(&self) -> &'static str {
        self.config.type_name()
    }

    /// The configuration, if it is of type `T`.
    pub fn get<T: Extension>(&self) -> Option<&T> {
        self.config.get()
    }

    /// Whether channels execute it: it was added with
    /// [`Registry::with_client_filter`](crate::resource::Registry::with_client_filter).
    #[cfg(feature = "channel")]
    pub fn is_executed(&self) -> bool {
        self.execution.is_some()
    }

    /// How it is executed, with its configuration.
    #[cfg(feature = "channel")]
    pub(crate) fn execution(&self) -> Option<(Execution, &Custom)> {
        self.execution.map(|execution| (execution, &self.config))
    }

    /// A filter that is parsed alone, for applications that handle requests themselves.
    fn parsed<T: HttpFilterExtension>(config: Custom) -> Self {
        Self {
            config,
            override_type: T::Override::TYPE_NAME,
            #[cfg(feature = "channel")]
            execution: None,
        }
    }

    /// A filter that channels execute.
    #[cfg(feature = "channel")]
    pub(crate) fn executed<T: ClientFilter>(config: Custom) -> Self {
        Self { execution: Some(Execution::of::<T>()), ..Self::parsed::<T>(config) }
    }

    /// Whether an override is for filters of this type.
    pub(super) fn takes(&self, setting: &Custom) -> bool {
        self.override_type == setting.type_name()
    }
}

impl fmt::Debug for CustomFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl PartialEq for CustomFilter {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(feature = "channel")]
        if self.is_executed() != other.is_executed() {
            return false;
        }
        self.config == other.config && self.override_type == other.override_type
    }
}

impl Serialize for CustomFilter {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.config.serialize(to)
    }
}

impl FilterType {
    /// The type that a configuration belongs to. An application's type replaces a built-in one.
    pub(in crate::resource) fn of_config(type_name: &str, cx: &Context<'_>) -> Option<Self> {
        Self::all(cx).find(|known| known.config_type == type_name)
    }

    /// The type that an override belongs to (FO5: some have none).
    pub(super) fn of_override(type_name: &str, cx: &Context<'_>) -> Option<Self> {
        Self::all(cx).find(|known| !known.override_type.is_empty() && known.override_type == type_name)
    }

    /// All known filters; those of the application take precedence.
    fn all(cx: &Context<'_>) -> impl Iterator<Item = Self> {
        cx.registry.http_filters().iter().chain(BUILT_IN).copied()
    }

    /// Whether the filter can be used on a side.
    pub(super) fn works_for(self, side: Side) -> bool {
        match (self.sides, side) {
            (Sides::Both, Side::Client | Side::Server)
            | (Sides::Client, Side::Client)
            | (Sides::Server, Side::Server) => true,
            (Sides::Client, Side::Server) | (Sides::Server, Side::Client) => false,
        }
    }

    /// The full name of the message that configures it.
    pub(in crate::resource) fn config_type(self) -> &'static str {
        self.config_type
    }

    /// Whether the filter must be the last one.
    pub(super) fn is_terminal(self) -> bool {
        self.is_terminal
    }

    /// Parses a configuration.
    pub(in crate::resource) fn parse(
        self,
        payload: Payload,
        cx: &Context<'_>,
    ) -> Result<HttpFilterConfig, Invalid> {
        (self.parse)(payload, cx)
    }

    /// Parses an override.
    pub(super) fn parse_override(
        self,
        payload: Payload,
        cx: &Context<'_>,
    ) -> Result<HttpFilterOverride, Invalid> {
        (self.parse_override)(payload, cx)
    }

    /// A type of filter of the application.
    pub(in crate::resource) const fn custom<T: HttpFilterExtension>() -> Self {
        Self::new::<T>(
            |payload, cx| {
                let config = Custom::parse::<T>(payload, cx)?;
                Ok(HttpFilterConfig::Custom(CustomFilter::parsed::<T>(config)))
            },
            |payload, cx| Custom::parse::<T::Override>(payload, cx).map(HttpFilterOverride::Custom),
        )
    }

    /// A type of filter of the application that channels execute.
    #[cfg(feature = "channel")]
    pub(in crate::resource) const fn executed<T: ClientFilter>() -> Self {
        Self::new::<T>(
            |payload, cx| {
                let config = Custom::parse::<T>(payload, cx)?;
                Ok(HttpFilterConfig::Custom(CustomFilter::executed::<T>(config)))
            },
            |payload, cx| Custom::parse::<T::Override>(payload, cx).map(HttpFilterOverride::Custom),
        )
    }

    /// The filter of a type.
    pub(super) const fn new<T: HttpFilterExtension>(
        parse: fn(Payload, &Context<'_>) -> Result<HttpFilterConfig, Invalid>,
        parse_override: fn(Payload, &Context<'_>) -> Result<HttpFilterOverride, Invalid>,
    ) -> Self {
        Self {
            config_type: T::TYPE_NAME,
            override_type: T::Override::TYPE_NAME,
            sides: T::SIDES,
            is_terminal: T::IS_TERMINAL,
            parse,
            parse_override,
        }
    }
}
