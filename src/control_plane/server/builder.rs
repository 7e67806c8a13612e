//! The builder of control planes.

use std::{fmt, sync::Arc};

use tonic::Status;

use super::ControlPlane;
use crate::control_plane::{
    event::Event,
    hub::{Authorize, Hub, Observer},
    server_limits::ServerLimits,
    session::{Behavior, Limits, Settings},
    store::{Store, Versions},
};

/// The settings of a [`ControlPlane`].
#[must_use]
pub struct ControlPlaneBuilder {
    store: Store,
    settings: Settings,
    server_limits: ServerLimits,
    authorize: Option<Authorize>,
    observers: Vec<Observer>,
}

impl ControlPlaneBuilder {
    /// The default settings, without resources.
    pub(super) fn new() -> Self {
        Self {
            store: Store::new(),
            settings: Settings::default(),
            server_limits: ServerLimits::default(),
            authorize: None,
            observers: Vec::new(),
        }
    }

    /// Sets the form of versions; see [`Store::with_versions`].
    pub fn versions(mut self, versions: Versions) -> Self {
        self.store = self.store.with_versions(versions);
        self
    }

    /// Sets a prefix of all versions; see [`Store::with_version_prefix`].
    pub fn version_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.store = self.store.with_version_prefix(prefix);
        self
    }

    /// Sets whether each resource is wrapped in a `Resource` message with its name and version, for clients whose node
    /// announces that they support it. By default it is not.
    pub fn wrap_resources(mut self, wrap: bool) -> Self {
        self.settings.wrap_resources = wrap;
        self
    }

    /// Sets the identifier of the server in each response (`control_plane.identifier`).
    pub fn identifier(mut self, identifier: impl Into<String>) -> Self {
        self.settings.identifier = Some(identifier.into());
        self
    }

    /// Sets the maximum number of resources and removed names together in a response of the incremental variant.
    /// Larger responses are split.
    pub fn max_per_response(mut self, resources: usize) -> Self {
        self.settings.max_per_response = Some(resources);
        self
    }

    /// Sets whether a reconnecting client of the incremental variant gets all resources, including those in its
    /// initial versions. By default it does not.
    pub fn ignore_initial_versions(mut self, ignore: bool) -> Self {
        self.settings.ignore_initial_versions = ignore;
        self
    }

    /// Sets the limits of what a client requests on a stream.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the limits of requests and connections.
    pub fn server_limits(mut self, limits: ServerLimits) -> Self {
        self.server_limits = limits;
        self
    }

    /// Sets a function that checks the headers of each stream and each REST poll before anything else of it is read. An error
    /// is the status of the stream; a poll gets 401 in its place, or 403 for `PERMISSION_DENIED`. It must not block.
    ///
    /// ```
    /// use tonic::Status;
    /// use xdskit::control_plane::ControlPlane;
    ///
    /// let control_plane = ControlPlane::builder()
    ///     .authorize(|headers| match headers.get("authorization") {
    ///         Some(token) if token == "Bearer open sesame" => Ok(()),
    ///         _ => Err(Status::unauthenticated("a token is needed")),
    ///     })
    ///     .build();
    /// ```
    pub fn authorize(
        mut self,
        check: impl Fn(&http::HeaderMap) -> Result<(), Status> + Send + Sync + 'static,
    ) -> Self {
        self.authorize = Some(Box::new(check));
        self
    }

    /// Sets permitted but unusual behavior of the server, for tests of clients.
    ///
    /// ```
    /// use xdskit::control_plane::{ControlPlane, session::Behavior};
    ///
    /// let mut behavior = Behavior::default();
    /// behavior.ignore_names_in_nack = true; // As istiod does.
    /// let control_plane = ControlPlane::builder().behavior(behavior).build();
    /// ```
    pub fn behavior(mut self, behavior: Behavior) -> Self {
        self.settings.behavior = behavior;
        self
    }

    /// Sets whether missing resources are unknown rather than absent, for a server that fetches resources on demand;
    /// see [`Store::with_on_demand`]. By default they are absent.
    pub fn on_demand(mut self, on_demand: bool) -> Self {
        self.store = self.store.with_on_demand(on_demand);
        self
    }

    /// Adds a function that is called for each event on a stream, in order, on the stream's task. It must not block.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Builds the control plane.
    pub fn build(self) -> ControlPlane {
        let Self { store, settings, server_limits, authorize, observers } = self;
        let hub = Hub::new(store, settings, server_limits, observers).with_authorize(authorize);
        ControlPlane { hub: Arc::new(hub) }
    }
}

impl fmt::Debug for ControlPlaneBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlaneBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
