//! An endpoint of a cluster in use: its addresses, its connection, and what is counted for it.

use std::{mem, net::SocketAddr, sync::Arc, time::Instant};

use super::{
    command::ConnectionId,
    connectivity::Connectivity,
    leaf::Scope,
    pick_first::{PickFirst, PickFirstSettings},
    picker::{Load, ReadyEndpoint},
};

/// What makes an endpoint the same in two configurations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The set of its addresses (CH3.24), sorted.
    Endpoint(Vec<SocketAddr>),
    /// All endpoints of a priority, or of one of its localities, under pick_first.
    All { priority: usize, locality: Option<String> },
}

/// Where an endpoint is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) priority: usize,
    pub(super) group: usize,
}

/// How an endpoint is configured.
#[derive(Debug)]
pub(super) struct MemberConfig {
    pub(super) key: Key,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) hostname: Option<Arc<str>>,
    /// A lost connection is replaced at once (CH3.26); otherwise the next pick requests it (CH3.22).
    pub(super) reconnects: bool,
}

/// An endpoint of a cluster.
#[derive(Debug)]
pub(super) struct Member<H> {
    pick_first: PickFirst,
    addresses: Vec<SocketAddr>,
    hostname: Option<Arc<str>>,
    reconnects: bool,
    /// A connection was requested once.
    pub(super) is_started: bool,
    pub(super) places: Vec<Place>,
    load: Arc<Load>,
    connection: Option<(ConnectionId, SocketAddr, H)>,
    /// What pickers have of it, while it is ready.
    pub(super) ready: Option<Arc<ReadyEndpoint<H>>>,
    /// The states that the levels above know.
    pub(super) connectivity: Connectivity,
    pub(super) timeout: Option<Instant>,
}

/// What changed in an endpoint: before, and after.
pub(super) struct Change {
    pub(super) connectivity: (Connectivity, Connectivity),
    pub(super) timeout: (Option<Instant>, Option<Instant>),
}

impl<H: Clone> Member<H> {
    pub(super) fn new(settings: PickFirstSettings) -> Self {
        Self {
            pick_first: PickFirst::new(settings),
            addresses: Vec::new(),
            hostname: None,
            reconnects: true,
            is_started: false,
            places: Vec::new(),
            load: Arc::default(),
            connection: None,
            ready: None,
            connectivity: Connectivity::Idle,
            timeout: None,
        }
    }

    /// The order of the addresses is passed on without reconnecting (CH3.24).
    pub(super) fn update(&mut self, config: MemberConfig, scope: &mut Scope<'_>) {
        self.reconnects = config.reconnects;
        if self.hostname != config.hostname {
            (self.hostname, self.ready) = (config.hostname, None);
        }
        if self.addresses != config.addresses {
            self.addresses.clone_from(&config.addresses);
            self.pick_first.update(config.addresses, (scope.now, scope.random), scope.commands);
        }
    }

    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        self.is_started = true;
        self.pick_first.connect((scope.now, scope.random), scope.commands);
    }

    pub(super) fn on_connected(&mut self, connection: ConnectionId, handle: H, scope: &mut Scope<'_>) {
        let Some(address) = self.pick_first.address(connection) else { return };
        self.pick_first.on_connected(connection, scope.commands);
        self.connection = Some((connection, address, handle));
    }

    pub(super) fn on_failed(&mut self, connection: ConnectionId, error: Arc<str>, scope: &mut Scope<'_>) {
        self.pick_first.on_failed(connection, error, (scope.now, scope.random), scope.commands);
    }

    pub(super) fn on_lost(&mut self, connection: ConnectionId, scope: &mut Scope<'_>) {
        self.pick_first.on_lost(connection, scope.commands);
    }

    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.handle_timeout((scope.now, scope.random), scope.commands);
    }

    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.reset_backoff((scope.now, scope.random), scope.commands);
    }

    pub(super) fn close(&mut self, scope: &mut Scope<'_>) {
        self.pick_first.close(scope.commands);
    }

    /// Connects again if that is the policy's way, and says what changed since the last time.
    pub(super) fn settle(&mut self, scope: &mut Scope<'_>) -> Change {
        if self.is_started && self.reconnects && self.pick_first.connectivity() == Connectivity::Idle {
            self.pick_first.connect((scope.now, scope.random), scope.commands);
        }
        let current = self.pick_first.ready();
        if self.connection.as_ref().map(|(id, ..)| *id) != current {
            (self.connection, self.ready) = (None, None);
        }
        if self.ready.is_none() {
            let (hostname, load) = (&self.hostname, &self.load);
            self.ready = self.connection.as_ref().map(|(_, address, handle)| {
                let (handle, address) = (handle.clone(), *address);
                Arc::new(ReadyEndpoint { handle, address, hostname: hostname.clone(), load: load.clone() })
            });
        }
        let connectivity = self.pick_first.connectivity();
        let timeout = self.pick_first.poll_timeout();
        Change {
            connectivity: (mem::replace(&mut self.connectivity, connectivity), connectivity),
            timeout: (mem::replace(&mut self.timeout, timeout), timeout),
        }
    }
}
