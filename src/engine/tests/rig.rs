//! An engine with nothing around it: tests pass events, and read its outputs as text.

use std::{collections::BTreeMap, time::Duration};

use prost::Message;

pub(super) use super::super::simulation::parts::{Cds, Eds, Full, Part, any, message};
use super::super::*;
use crate::protocol::ServerId;
use crate::{
    config::{ApiType, Server},
    engine::batches::ErasedBatch,
    error::Code,
    observed::{ErasedMembers, Observed, ResourceSource},
    pb::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            Resource as Wrapper,
        },
        google::protobuf::Any,
    },
    protocol::{self, ConnectTarget, Disconnect, DisconnectKind, StreamCommand, StreamEvent, StreamId},
    resolve::{Resolved, Snapshot},
    resource::{Cluster, ClusterLoadAssignment, Resource},
};

/// The same in the wrapper; without a text it is a heartbeat.
pub(super) fn wrapped<T: Resource>(name: &str, text: Option<&str>) -> Any {
    let resource = text.map(|text| any::<T>(name, text));
    let wrapper = Wrapper { name: name.into(), resource, ..Wrapper::default() };
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".into();
    Any { type_url, value: wrapper.encode_to_vec().into() }
}

/// A redirect in the wrapper.
pub(super) fn redirect(name: &str, target: &str) -> Any {
    // A message with a text in field 1, as in the proposal.
    let mut value = vec![0x0a];
    prost::encoding::encode_varint(target.len() as u64, &mut value);
    value.extend(target.bytes());
    let locator =
        Any { type_url: "type.googleapis.com/xds.core.v3.ResourceLocator".into(), value: value.into() };
    let wrapper = Wrapper { name: name.into(), resource: Some(locator), ..Wrapper::default() };
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".into();
    Any { type_url, value: wrapper.encode_to_vec().into() }
}

/// A response whose version and nonce are the same text.
pub(super) fn response<T: Resource>(version: &str, resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("n{version}"),
        type_url: T::TYPE_URL.into(),
        resources,
        ..DiscoveryResponse::default()
    }
}

/// A response with a nonce that is not made of its version.
pub(super) fn response_with_nonce<T: Resource>(
    (version, nonce): (&str, &str),
    resources: Vec<Any>,
) -> DiscoveryResponse {
    DiscoveryResponse { nonce: nonce.into(), ..response::<T>(version, resources) }
}

/// The same response in the incremental variant, with the names of what is gone.
pub(super) fn in_delta(response: &DiscoveryResponse, removed: &[&str]) -> Vec<u8> {
    let name = |any: &Any| crate::wire::string_field(&any.value, 1).unwrap().to_owned();
    let resources = response.resources.iter().map(|any| Wrapper {
        name: name(any),
        version: response.version_info.clone(),
        resource: Some(any.clone()),
        ..Wrapper::default()
    });
    let response = DeltaDiscoveryResponse {
        nonce: response.nonce.clone(),
        type_url: response.type_url.clone(),
        resources: resources.collect(),
        removed_resources: removed.iter().map(|name| (*name).into()).collect(),
        resource_errors: response.resource_errors.clone(),
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec()
}

/// A response of the incremental variant, whose nonce is `nonce`: resources by name, version and text, and removed names.
/// Without a text the resource is unset.
pub(super) fn delta_response<T: Resource>(
    nonce: &str,
    resources: &[(&str, &str, Option<&str>)],
    removed: &[&str],
) -> Vec<u8> {
    let resources = resources.iter().map(|(name, version, text)| Wrapper {
        name: (*name).into(),
        version: (*version).into(),
        resource: text.map(|text| any::<T>(name, text)),
        ..Wrapper::default()
    });
    let response = DeltaDiscoveryResponse {
        nonce: nonce.into(),
        type_url: T::TYPE_URL.into(),
        resources: resources.collect(),
        removed_resources: removed.iter().map(|name| (*name).into()).collect(),
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec()
}

/// The engine, its clock, and the numbers of its watches.
pub(super) struct Rig {
    pub(super) engine: Engine,
    pub(super) now: Instant,
    watches: u64,
    /// How requests are to be read.
    delta: bool,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Server::new("127.0.0.1:1").insecure())
    }

    pub(super) fn with(server: crate::config::ServerBuilder) -> Self {
        let node = crate::config::Node::new("n");
        let bootstrap = Bootstrap::builder().node(node).server(server).build().unwrap();
        Self::of(bootstrap, Settings::default())
    }

    /// The same on the incremental variant.
    pub(super) fn delta() -> Self {
        Self::delta_with(protocol::Settings::default())
    }

    pub(super) fn delta_with(settings: protocol::Settings) -> Self {
        let node = crate::config::Node::new("n");
        let server = Server::new("127.0.0.1:1").insecure();
        let bootstrap = Bootstrap::builder().node(node).server(server).build().unwrap();
        Self::of(bootstrap, protocol::Settings { api_type: ApiType::AggregatedDeltaGrpc, ..settings })
    }

    pub(super) fn of(bootstrap: Bootstrap, settings: impl Into<Settings>) -> Self {
        let settings = settings.into();
        let api_type =
            bootstrap.servers().find_map(|server| server.api_type).unwrap_or(settings.protocol.api_type);
        let engine = Engine::new(Arc::new(bootstrap), settings, 1);
        Self { engine, now: Instant::now(), watches: 0, delta: api_type.is_delta() }
    }

    /// Watches a name; returns the outputs.
    pub(super) fn watch<T: Resource>(&mut self, name: &str) -> (WatchId, Vec<String>) {
        let names = if name == "*" { Selection::All } else { Selection::One(name.into()) };
        self.watch_names::<T>(names)
    }

    /// The same of a collection.
    pub(super) fn watch_all<T: Resource>(&mut self, name: &str) -> (WatchId, Vec<String>) {
        self.watch_names::<T>(Selection::Collection(name.into()))
    }

    pub(super) fn watch_names<T: Resource>(&mut self, names: Selection) -> (WatchId, Vec<String>) {
        let watch_id = self.next_watch_id();
        self.engine.subscribe(watch_id, ResourceType::of::<T>(), names, self.now);
        (watch_id, self.drain())
    }

    /// A consumer of the batches of names, or of everything.
    pub(super) fn consume<T: Resource>(&mut self, name: &str) -> (WatchId, Vec<String>) {
        let names = match name {
            "*" => Selection::All,
            name if name.ends_with("/*") => Selection::Collection(name.into()),
            name => Selection::One(name.into()),
        };
        let (watch_id, ty) = (self.next_watch_id(), ResourceType::of::<T>());
        let selected = SelectedBatches { ty, names, erase: crate::observed::erase::<T> };
        self.engine.subscribe_batches(watch_id, selected, self.now);
        (watch_id, self.drain())
    }

    /// A consumer accepts its batch; returns what follows.
    pub(super) fn accept(&mut self, watch_id: WatchId, number: u64) -> (BatchOutcome, Vec<String>) {
        self.answer(watch_id, number, &[])
    }

    /// A consumer rejects some resources of its batch, for the reason `no`.
    pub(super) fn answer(
        &mut self,
        watch_id: WatchId,
        number: u64,
        rejected: &[&str],
    ) -> (BatchOutcome, Vec<String>) {
        let rejected = rejected.iter().map(|name| ((*name).into(), "no".to_owned())).collect();
        let answer = BatchAnswer { number, rejected, warnings: BTreeMap::new() };
        let outcome = self.engine.answer_batch(watch_id, answer, self.now);
        let mut outputs = self.drain();
        outputs.extend(self.work());
        (outcome, outputs)
    }

    /// The rest of what is being applied.
    fn work(&mut self) -> Vec<String> {
        let mut outputs = Vec::new();
        while let Some((_, Timer::Work)) = self.engine.poll_timeout() {
            self.engine.handle_timeout(self.now);
            outputs.extend(self.drain());
        }
        outputs
    }

    /// Watches a type whose values are not shown, only whether it is refused.
    pub(super) fn watch_raw(&mut self, ty: ResourceType, names: Selection) -> Vec<String> {
        let watch_id = self.next_watch_id();
        self.engine.subscribe(watch_id, ty, names, self.now);
        let refused = match self.engine.delivery.target(watch_id) {
            Some(WatchTarget::Refused(error)) => {
                Some(format!("{} refused {}", describe_watch(watch_id), error.code()))
            }
            _ => None,
        };
        let outputs = std::iter::from_fn(|| self.engine.poll_output());
        let outputs: Vec<_> =
            outputs.filter(|o| refused.is_none() || !matches!(o, Output::Notify { .. })).collect();
        refused.into_iter().chain(outputs.into_iter().map(|output| describe(output, self.delta))).collect()
    }

    /// Connects, and takes the first request.
    pub(super) fn connect_and_take(&mut self, attempt: u64) -> DiscoveryRequest {
        self.engine.handle_input(StreamEvent::Alive { stream: stream(attempt) }, self.now);
        self.engine.handle_input(StreamEvent::Connected { stream: stream(attempt) }, self.now);
        let mut outputs: Vec<_> = std::iter::from_fn(|| self.engine.poll_output()).collect();
        let Some(Output::Transport(StreamCommand::Send { message, .. })) = outputs.pop() else {
            panic!("nothing is requested")
        };
        DiscoveryRequest::decode(message).unwrap()
    }

    /// The number of a new watch.
    pub(super) fn next_watch_id(&mut self) -> WatchId {
        self.watches += 1;
        WatchId::new(self.watches)
    }

    /// How many watches there were.
    pub(super) fn watches(&self) -> u64 {
        self.watches
    }

    pub(super) fn unwatch(&mut self, watch_id: WatchId) -> Vec<String> {
        self.engine.unsubscribe(watch_id, self.now);
        self.drain()
    }

    /// The connection of an attempt comes about.
    pub(super) fn connect(&mut self, attempt: u64) -> Vec<String> {
        self.connect_to(stream(attempt))
    }

    pub(super) fn connect_to(&mut self, stream: StreamId) -> Vec<String> {
        let outputs = self.input(StreamEvent::Alive { stream });
        assert_eq!(outputs, [""; 0], "nothing follows from it before the connection is up");
        self.connect_to_silence(stream)
    }

    /// The same with a connection of which nothing is read, as that to a frozen server.
    pub(super) fn connect_to_silence(&mut self, stream: StreamId) -> Vec<String> {
        self.input(StreamEvent::Connected { stream })
    }

    /// The pending request is on its way.
    pub(super) fn sent(&mut self, attempt: u64) -> Vec<String> {
        self.sent_to(stream(attempt))
    }

    pub(super) fn sent_to(&mut self, stream: StreamId) -> Vec<String> {
        self.input(StreamEvent::RequestSent { stream })
    }

    /// A response comes on an attempt.
    pub(super) fn receive(&mut self, attempt: u64, response: &DiscoveryResponse) -> Vec<String> {
        self.receive_raw(attempt, response.encode_to_vec())
    }

    pub(super) fn receive_raw(&mut self, attempt: u64, bytes: Vec<u8>) -> Vec<String> {
        self.receive_from(stream(attempt), bytes)
    }

    pub(super) fn receive_from(&mut self, stream: StreamId, bytes: Vec<u8>) -> Vec<String> {
        let mut outputs = self.input(StreamEvent::Received { stream, message: bytes.into(), at: None });
        outputs.extend(self.work());
        outputs
    }

    pub(super) fn disconnect(&mut self, attempt: u64, kind: DisconnectKind) -> Vec<String> {
        self.disconnect_from(stream(attempt), kind)
    }

    pub(super) fn disconnect_from(&mut self, stream: StreamId, kind: DisconnectKind) -> Vec<String> {
        let reason = Disconnect::new(kind, "it broke");
        self.input(StreamEvent::Disconnected { stream, reason })
    }

    /// Lets time pass, with everything that is due in it.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<String> {
        let until = self.now + time;
        let mut outputs = Vec::new();
        while let Some((at, _)) = self.engine.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now);
            outputs.extend(self.drain());
        }
        self.now = until;
        outputs
    }

    /// Watches names, connects, and lets the requests go: a stream in use.
    pub(super) fn open<T: Resource>(&mut self, names: &[&str]) -> Vec<WatchId> {
        let watches = names.iter().map(|name| self.watch::<T>(name).0).collect();
        self.connect(1);
        self.sent(1);
        watches
    }

    pub(super) fn input(&mut self, input: impl Into<Input>) -> Vec<String> {
        self.engine.handle_input(input, self.now);
        self.drain()
    }

    pub(super) fn drain(&mut self) -> Vec<String> {
        if self.engine.resources() < 100 {
            self.engine.store.check_counts();
        }
        let delta = self.delta;
        std::iter::from_fn(|| self.engine.poll_output()).map(|output| describe(output, delta)).collect()
    }
}

pub(super) fn stream(attempt: u64) -> StreamId {
    stream_to(0, attempt)
}

pub(super) fn stream_to(server: u32, attempt: u64) -> StreamId {
    StreamId { server: ServerId(server), attempt }
}

/// An order in words: `send Full [a,b] 1/n1`, `#1 present 1 text`.
fn describe(output: Output, delta: bool) -> String {
    match output {
        Output::Transport(StreamCommand::Connect { stream, to, .. }) => match to {
            ConnectTarget::Server { api_type, path, .. } if !api_type.is_aggregated() => {
                format!("connect {stream} {path}")
            }
            ConnectTarget::Server { .. } => format!("connect {stream}"),
            ConnectTarget::File { file, .. } => format!("open {stream} {file}"),
        },
        Output::Transport(StreamCommand::Disconnect { stream }) => format!("disconnect {stream}"),
        Output::Transport(StreamCommand::Read { .. }) => "read".into(),
        Output::Lookup { lookup, host } => format!("lookup {} {host}", lookup.0),
        Output::Transport(StreamCommand::Send { message, .. }) if delta => {
            describe_delta_request(DeltaDiscoveryRequest::decode(message).unwrap())
        }
        Output::Transport(StreamCommand::Send { message, .. }) => {
            describe_request(&DiscoveryRequest::decode(message).unwrap())
        }
        Output::Notify { watch_id, observed } => {
            format!("{} {}", describe_watch(watch_id), describe_observed(&observed))
        }
    }
}

fn describe_request(request: &DiscoveryRequest) -> String {
    let DiscoveryRequest { version_info, resource_names, type_url, response_nonce, .. } = request;
    let ty = type_url.rsplit('.').next().unwrap();
    let node = if request.node.is_some() { " node" } else { "" };
    let error = request.error_detail.as_ref();
    let error =
        error.map(|error| format!(" {}: {}", Code::from_i32(error.code), error.message)).unwrap_or_default();
    format!("send {ty} [{}] {version_info}/{response_nonce}{node}{error}", resource_names.join(","))
}

/// A request of the incremental variant in words: `send Full +a,b -c {d=1} n1`.
fn describe_delta_request(request: DeltaDiscoveryRequest) -> String {
    let ty = request.type_url.rsplit('.').next().unwrap();
    let mut outputs = format!("send {ty}");
    for (sign, names) in [('+', request.resource_names_subscribe), ('-', request.resource_names_unsubscribe)]
    {
        if !names.is_empty() {
            outputs.push_str(&format!(" {sign}{}", names.join(",")));
        }
    }
    let versions: BTreeMap<_, _> = request.initial_resource_versions.into_iter().collect();
    if !versions.is_empty() {
        let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name}={version}")).collect();
        outputs.push_str(&format!(" {{{}}}", versions.join(",")));
    }
    if !request.response_nonce.is_empty() {
        outputs.push_str(&format!(" {}", request.response_nonce));
    }
    if request.node.is_some() {
        outputs.push_str(" node");
    }
    if let Some(error) = request.error_detail {
        outputs.push_str(&format!(" {}: {}", Code::from_i32(error.code), error.message));
    }
    outputs
}

pub(super) fn describe_watch(watch_id: WatchId) -> String {
    format!("#{watch_id}")
}

fn describe_observed(observed: &crate::resource::Erased) -> String {
    if let Some(full) = observed.downcast_ref::<Observed<Full>>() {
        describe_one(full, |full| &full.0)
    } else if let Some(part) = observed.downcast_ref::<Observed<Part>>() {
        describe_one(part, |part| &part.0)
    } else if let Some(cds) = observed.downcast_ref::<Observed<Cds>>() {
        describe_one(cds, |cds| &cds.0)
    } else if let Some(eds) = observed.downcast_ref::<Observed<Eds>>() {
        describe_one(eds, |eds| &eds.0)
    } else if let Some(cluster) = observed.downcast_ref::<Observed<Cluster>>() {
        describe_one(cluster, |cluster| &cluster.name)
    } else if let Some(assignment) = observed.downcast_ref::<Observed<ClusterLoadAssignment>>() {
        describe_one(assignment, |assignment| &assignment.cluster_name)
    } else if let Some(members) = observed.downcast_ref::<ErasedMembers>() {
        let each =
            members.map.iter().map(|(name, observed)| format!("{name}: {}", describe_observed(&observed.0)));
        let each = each.collect::<Vec<_>>().join(", ");
        let complete = if members.complete { "complete" } else { "incomplete" };
        let warning =
            members.warning.as_ref().map(|error| format!(" ({})", error.code())).unwrap_or_default();
        format!("{{{each}}} {complete}{warning}")
    } else if let Some(batch) = observed.downcast_ref::<ErasedBatch>() {
        describe_batch(batch)
    } else if let Some(resolved) = observed.downcast_ref::<Resolved>() {
        match resolved {
            Ok(tree) => format!("tree {}", describe_tree(tree)),
            Err(why) => format!("{}: {why}", why.code()),
        }
    } else {
        panic!("published something unknown")
    }
}

/// A batch in words: `batch 1: a=1/text -b held complete (code)`.
fn describe_batch(batch: &ErasedBatch) -> String {
    let text = |resource: &crate::resource::Erased| {
        let full = resource.downcast_ref::<Full>().map(|full| full.0.clone());
        let part = resource.downcast_ref::<Part>().map(|part| part.0.clone());
        full.or(part).unwrap_or_else(|| resource.downcast_ref::<Cds>().unwrap().0.clone())
    };
    let added = batch
        .added
        .iter()
        .map(|added| format!(" {}={}/{}", added.name, added.version, text(&added.resource)));
    let removed = batch.removed.iter().map(|name| format!(" -{name}"));
    let changes: String = added.chain(removed).collect();
    let held = if batch.is_held { " held" } else { "" };
    let complete = if batch.is_complete { " complete" } else { "" };
    let warning = batch.warning.as_ref().map(|error| format!(" ({})", error.code())).unwrap_or_default();
    format!("batch {}:{changes}{held}{complete}{warning}", batch.number)
}

/// The name of the routes, and the clusters with their endpoints.
fn describe_tree(tree: &Snapshot) -> String {
    let clusters = tree.clusters().map(|cluster| {
        let addresses = cluster.endpoints().map(|endpoint| endpoint.address().to_string());
        format!("{}={}", cluster.name(), addresses.collect::<Vec<_>>().join(","))
    });
    format!("{}: {}", tree.route_config().name, clusters.collect::<Vec<_>>().join(" "))
}

fn describe_one<T>(observed: &Observed<T>, text: impl Fn(&T) -> &str) -> String {
    match observed {
        Observed::Pending => "pending".into(),
        Observed::Present { resource, version, warning, source } => {
            let warning = warning.as_ref().map(|error| format!(" ({})", error.code())).unwrap_or_default();
            match source.as_deref() {
                Some(ResourceSource::Initial) => format!("initial{version} {}{warning}", text(resource)),
                Some(ResourceSource::Server { .. }) | None => {
                    format!("present {version} {}{warning}", text(resource))
                }
            }
        }
        Observed::Absent { reason } => format!("absent {}", reason.code()),
    }
}
