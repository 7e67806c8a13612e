//! A filter that does what a test has written for its id.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::Request;
use prost::Message;
use serde::Serialize;

use super::Mesh;
use crate::{
    pb::{
        envoy::{
            config::listener::v3::ApiListener,
            extensions::filters::{
                http::fault::v3::HttpFault,
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                },
            },
        },
        google::protobuf::Any,
    },
    resource::{
        Context, Extension, Invalid, Payload,
        http_filter::{CallFilter, ClientFilter, FilterBody, FilterFuture, HttpFilterExtension, Next, Sides},
    },
    testing::resources::listener,
};

/// Its message is the id of a script. One that ends in `#state` is given a number of its instance instead of the override.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Scripted(String);

/// Its message is a text for the script.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ScriptedOverride(String);

type Script = Arc<dyn for<'a> Fn(String, Request<FilterBody>, Next<'a>) -> FilterFuture<'a> + Send + Sync>;

static SCRIPTS: Mutex<BTreeMap<&str, Script>> = Mutex::new(BTreeMap::new());

fn scripts() -> MutexGuard<'static, BTreeMap<&'static str, Script>> {
    SCRIPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the script of an id. It is given the override of the route.
pub(in crate::channel::tests) fn script(
    id: &'static str,
    run: impl for<'a> Fn(String, Request<FilterBody>, Next<'a>) -> FilterFuture<'a> + Send + Sync + 'static,
) {
    scripts().insert(id, Arc::new(run));
}

/// The configuration of a filter with a script.
pub(in crate::channel::tests) fn of(id: &str) -> Any {
    any(Scripted::TYPE_NAME, id.as_bytes())
}

pub(super) fn overridden(text: &str) -> Any {
    any(ScriptedOverride::TYPE_NAME, text.as_bytes())
}

pub(super) fn fault(fault: &HttpFault) -> Any {
    any("envoy.extensions.filters.http.fault.v3.HTTPFault", &fault.encode_to_vec())
}

pub(in crate::channel::tests) fn any(type_name: &str, value: &[u8]) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: value.to_vec().into() }
}

/// The listener has a filter of the name `mine`.
pub(in crate::channel::tests) fn with_filter(mesh: &Mesh, config: Any) {
    with_filters(mesh, [("mine", config)]);
}

/// The listener has these filters.
pub(in crate::channel::tests) fn with_filters<const N: usize>(mesh: &Mesh, filters: [(&str, Any); N]) {
    mesh.server.set(listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        let filters = filters.map(|(name, config)| {
            let config_type = Some(ConfigType::TypedConfig(config));
            HttpFilter { name: name.into(), config_type, ..HttpFilter::default() }
        });
        drop(manager.http_filters.splice(0..0, filters));
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    }));
}

struct Runs {
    script: Option<Script>,
    setting: String,
}

impl Extension for Scripted {
    const TYPE_NAME: &'static str = "test.Scripted";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self(String::from_utf8_lossy(&payload.message()?).into_owned()))
    }
}

impl Extension for ScriptedOverride {
    const TYPE_NAME: &'static str = "test.ScriptedOverride";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self(String::from_utf8_lossy(&payload.message()?).into_owned()))
    }
}

impl HttpFilterExtension for Scripted {
    const SIDES: Sides = Sides::Client;
    type Override = ScriptedOverride;
}

impl ClientFilter for Scripted {
    type State = u64;

    fn state(&self, _: &str) -> u64 {
        assert!(self.0 != "panics#made", "on purpose");
        fastrand::u64(..)
    }

    fn call_filter(&self, setting: Option<&ScriptedOverride>, state: &Arc<u64>) -> Box<dyn CallFilter> {
        let setting = match setting {
            Some(ScriptedOverride(setting)) => setting.clone(),
            None if self.0.ends_with("#state") => state.to_string(),
            None => String::new(),
        };
        Box::new(Runs { script: scripts().get(&*self.0).cloned(), setting })
    }
}

impl CallFilter for Runs {
    fn call<'a>(&'a self, request: Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
        let script = self.script.as_ref().expect("a script");
        script(self.setting.clone(), request, next)
    }
}
