//! The load balancing policy of the case `custom_lb`: `round_robin` that adds the metadata `rpc-behavior`, by which the backends
//! change how they respond.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use xdskit::resource::{
    Context, Extension, Invalid, Payload,
    load_balancing::{
        EndpointBalancer, EndpointPick, EndpointPicker, EndpointPolicy, PickRequest, PolicyEndpoint,
    },
};

/// Its configuration, a `TypedStruct` with the field `rpcBehavior`.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct RpcBehavior {
    behavior: String,
}

struct Balancer {
    behavior: String,
}

struct Picker {
    behavior: String,
    /// The places of the ready endpoints.
    ready: Vec<usize>,
    next: AtomicUsize,
}

impl Extension for RpcBehavior {
    const TYPE_NAME: &'static str = "test.RpcBehaviorLoadBalancer";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(settings) = payload else { return Err(Invalid::new("must be a TypedStruct")) };
        let behavior = settings.get("rpcBehavior").and_then(serde_json::Value::as_str);
        let behavior = behavior.ok_or_else(|| Invalid::field("rpcBehavior", "must be a text"))?;
        Ok(Self { behavior: behavior.to_owned() })
    }
}

impl EndpointPolicy for RpcBehavior {
    fn balancer(&self, _: u64) -> Box<dyn EndpointBalancer> {
        Box::new(Balancer { behavior: self.behavior.clone() })
    }
}

impl EndpointBalancer for Balancer {
    fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker> {
        let ready = endpoints.iter().enumerate().filter(|(_, it)| it.is_ready()).map(|(place, _)| place);
        let (behavior, ready) = (self.behavior.clone(), ready.collect());
        Box::new(Picker { behavior, ready, next: AtomicUsize::new(0) })
    }
}

impl EndpointPicker for Picker {
    fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick {
        request.add_metadata("rpc-behavior", &self.behavior);
        let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(self.ready.len());
        turn.map_or(EndpointPick::Wait, |turn| EndpointPick::Endpoint(self.ready[turn]))
    }
}
