//! What the tests of filters have in common.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::*;
use crate::{
    pb::xds::r#type::v3::TypedStruct,
    resource::{Extension, Payload, Registry},
};

mod discovered;
mod effective;
mod external;
mod filters;
mod header_mutation;
mod overrides;
mod rbac;
mod registry;
mod settings;

const ROUTER: &str = Router::TYPE_NAME;
const FAULT: &str = Fault::TYPE_NAME;
const RBAC: &str = Rbac::TYPE_NAME;
const SESSION: &str = StatefulSession::TYPE_NAME;
const GCP_AUTHN: &str = GcpAuthn::TYPE_NAME;
const GARBAGE: &[u8] = &[0xff];

fn any(name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: value.into() }
}

/// A `TypedStruct` for a type, without fields.
fn typed_struct(outer: &str, inner: &str) -> Any {
    let typed = TypedStruct { type_url: format!("type.googleapis.com/{inner}"), value: None };
    any(outer, typed.encode_to_vec())
}

fn with_config(name: &str, config: Any) -> hcm::HttpFilter {
    let config_type = Some(ConfigType::TypedConfig(config));
    hcm::HttpFilter { name: name.into(), config_type, ..Default::default() }
}

fn filter(name: &str, type_name: &str) -> hcm::HttpFilter {
    with_config(name, any(type_name, ""))
}

fn router() -> hcm::HttpFilter {
    filter("router", ROUTER)
}

fn optional(filter: hcm::HttpFilter) -> hcm::HttpFilter {
    hcm::HttpFilter { is_optional: true, ..filter }
}

fn parse(
    side: Side,
    filters: impl IntoIterator<Item = hcm::HttpFilter>,
) -> Result<Box<[HttpFilter]>, Invalid> {
    parse_filters(filters.into_iter().collect(), side, &Context::new())
}

/// The names of a client's filters.
fn names(filters: impl IntoIterator<Item = hcm::HttpFilter>) -> Result<Vec<String>, Invalid> {
    Ok(parse(Side::Client, filters)?.iter().map(|filter| filter.name.to_string()).collect())
}

/// Why a client's filters are rejected.
fn error(filters: impl IntoIterator<Item = hcm::HttpFilter>) -> String {
    parse(Side::Client, filters).unwrap_err().to_string()
}

fn error_path(filters: impl IntoIterator<Item = hcm::HttpFilter>) -> String {
    parse(Side::Client, filters).unwrap_err().path().to_owned()
}

/// The configuration that a message becomes in a listener of the side that it is for.
fn config(side: Side, type_name: &str, message: &impl Message) -> Result<HttpFilterConfig, Invalid> {
    let filter = with_config("a", any(type_name, message.encode_to_vec()));
    parse(side, [filter, router()]).map(|parsed| parsed[0].config.clone())
}

fn overridden_in(filter: &str, any: Any, cx: &Context<'_>) -> Result<Vec<OverrideSetting>, Invalid> {
    let parsed = parse_overrides(BTreeMap::from([(filter.to_owned(), any)]), cx)?;
    Ok(parsed.iter().map(|o| o.setting.clone()).collect())
}

/// What an override of the filter `f` becomes.
fn overridden(any: Any) -> Result<Vec<OverrideSetting>, Invalid> {
    overridden_in("f", any, &Context::new())
}

fn wrapped(config: Option<Any>, is_optional: bool, disabled: bool) -> Any {
    any(FILTER_CONFIG, FilterConfig { config, is_optional, disabled }.encode_to_vec())
}
