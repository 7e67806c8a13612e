//! Load balancing policies of applications (CH3.63).

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::picker::ReadyEndpoint;
use crate::{
    error::Code,
    resolve::RouteQuery,
    resource::load_balancing::{
        AddedMetadata, CustomPolicy, EndpointBalancer, EndpointPick, EndpointPicker, PickRequest,
        PolicyEndpoint,
    },
};

/// A policy of the application with its endpoints. A panic of it ends it: it fails until the next configuration.
pub(super) struct CustomBalancer {
    policy: CustomPolicy,
    balancer: Option<Box<dyn EndpointBalancer>>,
    endpoints: Vec<PolicyEndpoint>,
    is_broken: Arc<AtomicBool>,
}

/// A picker of a policy of the application.
pub(super) struct CustomPicker<H> {
    /// `None` if the policy panicked instead of making one.
    picker: Option<Arc<dyn EndpointPicker>>,
    /// By the places of the endpoints.
    ready: Box<[Option<Arc<ReadyEndpoint<H>>>]>,
    is_broken: Arc<AtomicBool>,
}

/// The result of [`CustomPicker::pick`].
pub(super) enum CustomPick<'a, H> {
    Endpoint(&'a Arc<ReadyEndpoint<H>>, Vec<AddedMetadata>),
    Wait,
    Fail(Code, Arc<str>),
    /// It panicked, now or before.
    Broken,
}

impl CustomBalancer {
    pub(super) fn new(policy: &CustomPolicy, seed: u64) -> Self {
        let made = catch_unwind(AssertUnwindSafe(|| policy.balancer(seed))).ok().flatten();
        let is_broken = Arc::new(AtomicBool::new(made.is_none()));
        Self { policy: policy.clone(), balancer: made, endpoints: Vec::new(), is_broken }
    }

    pub(super) fn is_of(&self, policy: &CustomPolicy) -> bool {
        self.policy == *policy
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    pub(super) fn set_endpoints(&mut self, endpoints: Vec<PolicyEndpoint>) {
        self.endpoints = endpoints;
    }

    pub(super) fn picker<H>(&mut self, slots: Box<[Option<Arc<ReadyEndpoint<H>>>]>) -> CustomPicker<H> {
        let Self { policy: _, balancer, endpoints, is_broken } = self;
        endpoints.iter_mut().zip(&slots).for_each(|(endpoint, slot)| endpoint.set_ready(slot.is_some()));
        let picker = balancer.as_mut().and_then(|balancer| {
            let made = catch_unwind(AssertUnwindSafe(|| balancer.picker(endpoints)));
            made.map(Arc::from).inspect_err(|_| is_broken.store(true, Ordering::Relaxed)).ok()
        });
        CustomPicker { picker, ready: slots, is_broken: is_broken.clone() }
    }
}

impl<H> CustomPicker<H> {
    pub(super) fn pick(&self, query: &RouteQuery<'_>) -> CustomPick<'_, H> {
        let Some(picker) = self.picker.as_ref().filter(|_| !self.is_broken.load(Ordering::Relaxed)) else {
            return CustomPick::Broken;
        };
        let header = |name: &str| query.header_value(name);
        let mut request = PickRequest::new(query.path(), &header);
        match catch_unwind(AssertUnwindSafe(|| picker.pick(&mut request))) {
            Ok(EndpointPick::Endpoint(place)) => match self.ready.get(place) {
                Some(Some(endpoint)) => CustomPick::Endpoint(endpoint, request.into_added()),
                Some(None) | None => CustomPick::Wait,
            },
            Ok(EndpointPick::Wait) => CustomPick::Wait,
            Ok(EndpointPick::Fail { code, message }) => CustomPick::Fail(code, message.into()),
            Err(_) => {
                self.is_broken.store(true, Ordering::Relaxed);
                CustomPick::Broken
            }
        }
    }

    /// The same picker without some of its endpoints.
    pub(super) fn without(&self, is_left_out: impl Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        let keep = |slot: &Option<Arc<ReadyEndpoint<H>>>| slot.clone().filter(|it| !is_left_out(it));
        let ready = self.ready.iter().map(keep).collect();
        Self { picker: self.picker.clone(), ready, is_broken: self.is_broken.clone() }
    }
}

impl fmt::Debug for CustomBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomBalancer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<H> fmt::Debug for CustomPicker<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomPicker").field("is_broken", &self.is_broken).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
