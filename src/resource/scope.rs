//! Scoped routes (SRDS): the choice of a route configuration by a key of the request.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{Context, Invalid, Resource, ScopedRouteConfiguration, config_source, parts};
use crate::{
    name::ResourceName,
    pb::envoy::extensions::filters::network::http_connection_manager::v3::{
        self as hcm,
        scoped_routes::{
            ConfigSpecifier,
            scope_key_builder::{
                FragmentBuilder,
                fragment_builder::{self, HeaderValueExtractor, header_value_extractor::ExtractType},
            },
        },
    },
};

/// The choice of a route configuration by a key, which is built from the headers of a request: that of the
/// [scope](ScopedRouteConfiguration) with an equal key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScopedRoutes {
    /// The name of the scoped routes, for display.
    pub name: Arc<str>,
    /// The fragments of the key, each taken from a header of a request, in order; at least one.
    pub key_builder: Box<[ScopeKeyFragment]>,
    /// The source of the scopes.
    #[serde(flatten)]
    pub scopes: ScopeSource,
}

/// The source of a listener's scopes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScopeSource {
    /// Scopes in the listener itself; at least one. Of two with the same key, the first is used.
    #[serde(rename = "scoped_route_configurations")]
    Inline(Box<[Arc<ScopedRouteConfiguration>]>),
    /// Scopes that are resources, from the server of the listener: the members of the collection of this name, or all
    /// that the server has.
    #[serde(rename = "scoped_rds")]
    Srds(Option<Arc<str>>),
}

/// A fragment of a scope's key: an element of the first value of a header.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScopeKeyFragment {
    /// The name of the header.
    pub header: Box<str>,
    /// The separator of elements; if empty, the whole value is the only element.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub element_separator: Box<str>,
    /// The selected element.
    #[serde(flatten)]
    pub element: HeaderElement,
}

/// The element of a header's value that is a fragment of a scope's key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeaderElement {
    /// The element at this index, from 0.
    Index(u32),
    /// The value of the first element that is a pair with this key, or empty if the element is the key alone.
    #[serde(rename = "element")]
    Pair {
        /// The separator of key and value.
        separator: Box<str>,
        /// The key.
        key: Box<str>,
    },
}

impl ScopedRoutes {
    /// Rules SC1 to SC5.
    pub(super) fn parse(message: hcm::ScopedRoutes, cx: &Context<'_>) -> Result<Self, Invalid> {
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let fragments = message.scope_key_builder.map(|builder| builder.fragments).unwrap_or_default();
        if fragments.is_empty() {
            return Err(Invalid::field("scope_key_builder.fragments", "must not be empty"));
        }
        let key_builder = parts::each("fragments", fragments, ScopeKeyFragment::parse)
            .map_err(|e| e.at("scope_key_builder"))?;
        let source = message.rds_config_source.as_ref();
        let scopes = ScopeSource::parse(message.config_specifier, cx)?;
        // Unset is accepted. It only concerns scopes with RDS, whose routes are always requested from the same
        // server.
        if source.is_some() {
            config_source::same_stream(source, cx).map_err(|e| e.at("rds_config_source"))?;
        }
        Ok(Self { name: message.name.into(), key_builder, scopes })
    }

    /// Builds the key of a request; `header` returns the first value of a header by its name.
    ///
    /// # Errors
    /// The fragment that the request has no value for; the request is then in no scope.
    pub fn key<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Result<Box<[Box<str>]>, &ScopeKeyFragment> {
        let part = |fragment: &ScopeKeyFragment| fragment.of(header(&fragment.header)?).map(Into::into);
        self.key_builder.iter().map(|fragment| part(fragment).ok_or(fragment)).collect()
    }
}

impl ScopeSource {
    /// Parses where the scopes are.
    fn parse(specifier: Option<ConfigSpecifier>, cx: &Context<'_>) -> Result<Self, Invalid> {
        match specifier {
            Some(ConfigSpecifier::ScopedRouteConfigurationsList(list)) => {
                let scopes = list.scoped_route_configurations;
                if scopes.is_empty() {
                    let field = "scoped_route_configurations_list.scoped_route_configurations";
                    return Err(Invalid::field(field, "must not be empty"));
                }
                let parse = |scope| ScopedRouteConfiguration::parse_message(scope, cx).map(Arc::new);
                parts::each("scoped_route_configurations", scopes, parse)
                    .map(Self::Inline)
                    .map_err(|e| e.at("scoped_route_configurations_list"))
            }
            Some(ConfigSpecifier::ScopedRds(scoped_rds)) => {
                config_source::same_stream(scoped_rds.scoped_rds_config_source.as_ref(), cx)
                    .map_err(|e| e.at("scoped_rds_config_source"))
                    .and_then(|()| collection(scoped_rds.srds_resources_locator))
                    .map(Self::Srds)
                    .map_err(|e| e.at("scoped_rds"))
            }
            None => Err(Invalid::new("neither scoped_route_configurations_list nor scoped_rds is set")),
        }
    }
}

impl ScopeKeyFragment {
    /// Parses a part of the key.
    fn parse(message: FragmentBuilder) -> Result<Self, Invalid> {
        let Some(fragment_builder::Type::HeaderValueExtractor(extractor)) = message.r#type else {
            return Err(Invalid::new("no type that is supported; expected header_value_extractor"));
        };
        Self::parse_extractor(extractor).map_err(|e| e.at("header_value_extractor"))
    }

    /// Parses a part that is taken from a header.
    fn parse_extractor(message: HeaderValueExtractor) -> Result<Self, Invalid> {
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let element = match message.extract_type {
            Some(ExtractType::Index(index)) if index > 0 && message.element_separator.is_empty() => {
                return Err(Invalid::field("index", "must be 0 where element_separator is empty"));
            }
            Some(ExtractType::Index(index)) => HeaderElement::Index(index),
            Some(ExtractType::Element(element)) if element.separator.is_empty() => {
                return Err(Invalid::field("element.separator", "must not be empty"));
            }
            Some(ExtractType::Element(element)) if element.key.is_empty() => {
                return Err(Invalid::field("element.key", "must not be empty"));
            }
            Some(ExtractType::Element(element)) => {
                HeaderElement::Pair { separator: element.separator.into(), key: element.key.into() }
            }
            None => return Err(Invalid::new("neither index nor element is set")),
        };
        let (header, element_separator) = (message.name.into(), message.element_separator.into());
        Ok(Self { header, element_separator, element })
    }

    /// Returns the selected element of a header's value; `None` if there is no such element.
    fn of<'v>(&self, value: &'v str) -> Option<&'v str> {
        match &self.element {
            // An empty separator would split between all characters.
            HeaderElement::Index(0) if self.element_separator.is_empty() => Some(value),
            HeaderElement::Index(index) => value.split(&*self.element_separator).nth(*index as usize),
            HeaderElement::Pair { separator, key } if self.element_separator.is_empty() => {
                pair(value, separator, key)
            }
            HeaderElement::Pair { separator, key } => {
                value.split(&*self.element_separator).find_map(|element| pair(element, separator, key))
            }
        }
    }
}

/// The description in errors: `element 1 of the header "x-scope"`.
impl fmt::Display for ScopeKeyFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.element {
            HeaderElement::Index(_) if self.element_separator.is_empty() => {}
            HeaderElement::Index(index) => write!(f, "element {index} of ")?,
            HeaderElement::Pair { key, .. } => write!(f, "element {key:?} of ")?,
        }
        write!(f, "the header {:?}", self.header)
    }
}

/// Returns the value of a pair with this key. An element without the separator is a key.
fn pair<'v>(element: &'v str, separator: &str, key: &str) -> Option<&'v str> {
    // As in Envoy, an element without the separator is a key with an empty value.
    let (found, value) = element.split_once(separator).unwrap_or((element, ""));
    (found == key).then_some(value)
}

/// Parses the name of a collection of scopes, if there is one.
fn collection(locator: String) -> Result<Option<Arc<str>>, Invalid> {
    if locator.is_empty() {
        return Ok(None);
    }
    let invalid = |reason: String| Invalid::field("srds_resources_locator", reason);
    let name = ResourceName::parse(&locator).map_err(|e| invalid(e.to_string()))?;
    let scopes = parts::message_name(ScopedRouteConfiguration::TYPE_URL);
    if !name.is_glob() || name.resource_type() != Some(scopes) {
        return Err(invalid(format!("{locator:?} is no glob collection of {scopes}")));
    }
    Ok(Some(name.spelling().into()))
}

#[cfg(test)]
mod tests;
