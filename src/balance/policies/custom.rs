//! Policies of applications, and policies of the crate that are written on the same public interface (CH3.63).

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    EndpointPolicy, EndpointState, PickerEndpoints, PolicyPick, PolicyPicker, PolicyState, Tracking,
    unreachable,
};
use crate::{
    balance::{
        hash::RequestHash,
        lists::config::EndpointList,
        pick_args::{CallAttributes, PickArgs},
        ready_endpoint::ReadyEndpoint,
        ready_set::ReadySet,
    },
    resolve::RouteQuery,
    resource::{
        LbPolicy,
        load_balancing::{
            self as public, CustomPolicy, EndpointBalancer, EndpointPick, EndpointPicker, PickRequest,
            PickResources, PolicyEndpoint,
        },
    },
};

/// Policy of the application.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Custom(pub(in crate::balance) CustomPolicy);

/// A policy on the public interface with its endpoints. A panic of it ends it: it fails until the next configuration.
pub(in crate::balance) struct CustomBalancer {
    policy: CustomPolicy,
    /// `None` if the policy panicked instead of making one.
    balancer: Option<Box<dyn EndpointBalancer>>,
    /// Endpoints by the indexes of the list.
    endpoints: Vec<PolicyEndpoint>,
    /// The newest errors of failing endpoints, by the indexes of the list.
    errors: BTreeMap<usize, Arc<str>>,
    is_broken: Arc<AtomicBool>,
}

/// Picker of a policy on the public interface.
pub(in crate::balance) struct CustomPicker<H> {
    /// `None` if the policy panicked instead of making one.
    picker: Option<Arc<dyn EndpointPicker>>,
    /// The ready endpoints by the indexes of the list.
    ready: Box<[Option<Arc<ReadyEndpoint<H>>>]>,
    /// The newest errors of failing endpoints.
    errors: BTreeMap<usize, Arc<str>>,
    /// The endpoints whose connections picks have requested. What follows is another state, and so another picker.
    requested: Box<[AtomicBool]>,
    /// Why the configuration may be stale (CH1.9).
    stale_config: Option<Arc<str>>,
    is_broken: Arc<AtomicBool>,
}

/// What a pick has of the channel.
struct Resources<'a, 'b, H> {
    hash: &'a mut RequestHash,
    random: &'a mut fastrand::Rng,
    request: &'a RouteQuery<'b>,
    ready: &'a [Option<Arc<ReadyEndpoint<H>>>],
    /// The index of the endpoint whose connection the policy has requested last in this pick.
    connect: Option<usize>,
}

impl CustomBalancer {
    /// The state for a list of endpoints. That of the list before is kept if its policy is equal and has not panicked.
    pub(super) fn new(
        policy: &CustomPolicy,
        list: &EndpointList<'_>,
        before: Option<Self>,
        random: &mut fastrand::Rng,
    ) -> Self {
        let before = before.filter(|before| before.policy == *policy && !before.is_broken());
        let mut balancer = before.unwrap_or_else(|| Self::made(policy, random.u64(..)));
        balancer.endpoints = list
            .with_localities()
            .map(|(locality, endpoint)| {
                let (addresses, key) = (endpoint.addresses.clone(), endpoint.hash_key());
                PolicyEndpoint::new(addresses, locality.locality.clone(), endpoint.weight, key)
                    .with_hostname(endpoint.hostname.clone())
                    .with_locality_weight(locality.weight)
            })
            .collect();
        // The errors are by the indices of the list before.
        balancer.errors.clear();
        balancer
    }

    /// A new balancer of a policy, without endpoints; a broken one if the policy panics.
    fn made(policy: &CustomPolicy, seed: u64) -> Self {
        // Code of the application: its panic fails the calls of this list, and not the channel (CH3.63).
        let balancer = catch_unwind(AssertUnwindSafe(|| policy.balancer(seed))).ok().flatten();
        let is_broken = Arc::new(AtomicBool::new(balancer.is_none()));
        Self { policy: policy.clone(), balancer, endpoints: Vec::new(), errors: BTreeMap::new(), is_broken }
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

impl EndpointPolicy for Custom {
    const NAME: &'static str = "custom";

    type State<H> = CustomBalancer;

    fn read(configured: &LbPolicy) -> Option<Self> {
        let LbPolicy::Custom(policy) = configured else { return None };
        policy.is_executed().then(|| Self(policy.clone()))
    }

    fn state<H>(
        &self,
        list: &EndpointList<'_>,
        before: Option<CustomBalancer>,
        random: &mut fastrand::Rng,
    ) -> CustomBalancer {
        CustomBalancer::new(&self.0, list, before, random)
    }

    fn connects_on_demand(&self) -> bool {
        self.0.connects_on_demand()
    }
}

impl<H> PolicyState<H> for CustomBalancer {
    type Picker = Arc<CustomPicker<H>>;

    fn set_endpoint(&mut self, index: usize, state: impl FnOnce() -> EndpointState<H>) -> bool {
        self.errors.remove(&index);
        let state = match state() {
            EndpointState::Ready(_) => public::EndpointState::Ready,
            EndpointState::Idle => public::EndpointState::Idle,
            EndpointState::Connecting => public::EndpointState::Connecting,
            EndpointState::Failing(error) => {
                self.errors.extend(error.map(|error| (index, error)));
                public::EndpointState::Failing
            }
        };
        // Another connection of a ready endpoint does not change its state here: the list outdates the picker then.
        self.endpoints[index].replace_state(state) != state
    }

    fn picker(&mut self, endpoints: &PickerEndpoints<'_, H>) -> Arc<CustomPicker<H>> {
        let Self { policy: _, balancer, endpoints: listed, errors, is_broken } = self;
        let picker = balancer.as_mut().and_then(|balancer| {
            let made = catch_unwind(AssertUnwindSafe(|| balancer.picker(listed)));
            made.map(Arc::from).inspect_err(|_| is_broken.store(true, Ordering::Relaxed)).ok()
        });
        Arc::new(CustomPicker {
            picker,
            ready: endpoints.slots.slots().map(Option::<&_>::cloned).collect(),
            errors: errors.clone(),
            requested: listed.iter().map(|_| AtomicBool::new(false)).collect(),
            stale_config: endpoints.stale_config.cloned(),
            is_broken: is_broken.clone(),
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken()
    }
}

impl<H> CustomPicker<H> {
    fn pick_of(&self, args: &mut PickArgs<'_, '_>) -> PolicyPick<'_, H> {
        let Some(picker) = self.picker.as_ref().filter(|_| !self.is_broken.load(Ordering::Relaxed)) else {
            return PolicyPick::Broken;
        };
        let query = args.request;
        let header = |name: &str| query.header_value(name);
        let mut resources = Resources {
            hash: args.attributes.request_hash(),
            random: args.random,
            request: query,
            ready: &self.ready,
            connect: None,
        };
        let mut request = PickRequest::new(query.path(), &header, &mut resources);
        let pick = catch_unwind(AssertUnwindSafe(|| picker.pick(&mut request)));
        let metadata = request.into_added();
        let is_first = |index: &usize| {
            self.requested.get(*index).is_some_and(|requested| !requested.swap(true, Ordering::Relaxed))
        };
        if let Some(index) = resources.connect.filter(is_first) {
            args.attributes.request_connection(index);
        }
        match pick {
            Ok(EndpointPick::Endpoint(index)) => match self.ready.get(index) {
                Some(Some(endpoint)) => {
                    // Counted for any policy, since each may compare the requests in flight.
                    let tracking = Tracking { counts_request: true, penalty: None };
                    PolicyPick::EndpointWithMetadata(endpoint, tracking, metadata)
                }
                // The endpoint is not ready, or there is none at the index: the next picker decides.
                Some(None) | None => PolicyPick::Wait,
            },
            Ok(EndpointPick::Wait) => PolicyPick::Wait,
            Ok(EndpointPick::Unreachable(index)) => {
                let error = self.errors.get(&index).map(|error| &**error);
                PolicyPick::Fail(unreachable(error, self.stale_config.as_deref()))
            }
            Ok(EndpointPick::Fail { code, message }) => PolicyPick::FailAs(code, message.into()),
            Err(_) => {
                self.is_broken.store(true, Ordering::Relaxed);
                PolicyPick::Broken
            }
        }
    }
}

impl<H> PickResources for Resources<'_, '_, H> {
    fn hash(&mut self) -> u64 {
        self.hash.get(self.request, self.random)
    }

    fn random(&mut self) -> u64 {
        self.random.u64(..)
    }

    fn requests_in_flight(&self, index: usize) -> u32 {
        let endpoint = self.ready.get(index).and_then(Option::as_ref);
        endpoint.map_or(0, |endpoint| endpoint.load.running())
    }

    fn connect(&mut self, index: usize) {
        self.connect = Some(index);
    }
}

impl<H> PolicyPicker<H> for Arc<CustomPicker<H>> {
    fn pick<'a>(&'a self, _: &'a ReadySet<H>, args: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        self.pick_of(args)
    }

    /// What the policy reads is not known before it does.
    fn needs_request(&self, _: &CallAttributes) -> bool {
        true
    }

    fn without(&self, _: &ReadySet<H>, is_left_out: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        let keep =
            |slot: &Option<Arc<ReadyEndpoint<H>>>| slot.clone().filter(|endpoint| !is_left_out(endpoint));
        let ready = self.ready.iter().map(keep).collect();
        Self::new(CustomPicker {
            picker: self.picker.clone(),
            ready,
            errors: self.errors.clone(),
            // A replaced policy connects nothing any more (CH3.13).
            requested: self.requested.iter().map(|_| AtomicBool::new(true)).collect(),
            stale_config: self.stale_config.clone(),
            is_broken: self.is_broken.clone(),
        })
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
pub(in crate::balance) mod tests;
