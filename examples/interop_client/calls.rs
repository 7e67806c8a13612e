//! The calls, and what is configured of them.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
};
use xdskit::Channel;

use super::{
    args::Args,
    codec::Proto,
    messages::{ClientConfigureRequest, Empty, Payload, RpcType, SimpleRequest, SimpleResponse},
    print_line::print_line,
    stats::{Outcome, Stats},
};

/// Makes the calls.
pub(crate) struct Calls {
    pub(crate) args: Arc<Args>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) settings: Arc<Settings>,
}

/// What is called from now on.
#[derive(Debug)]
pub(crate) struct Settings {
    default_timeout: Duration,
    methods: Mutex<Arc<[Method]>>,
}

/// What is configured of the calls of a method.
#[derive(Debug)]
struct Method {
    kind: RpcType,
    metadata: MetadataMap,
    timeout: Duration,
}

impl Settings {
    /// The settings of the command line.
    pub(crate) fn new(args: &Args) -> Result<Self, String> {
        let metadata = args.metadata.iter().map(|(kind, key, value)| (*kind, key.as_str(), value.as_str()));
        let methods = methods(&args.methods, metadata, args.timeout)?;
        Ok(Self { default_timeout: args.timeout, methods: Mutex::new(methods) })
    }

    /// Replaces them. Metadata of methods that are not called is ignored, and no methods are no calls.
    pub(crate) fn configure(&self, request: &ClientConfigureRequest) -> Result<(), String> {
        let of = |kind: i32| RpcType::try_from(kind).map_err(|_| format!("no such type of calls: {kind}"));
        let types = request.types.iter().map(|kind| of(*kind)).collect::<Result<Vec<_>, _>>()?;
        let metadata = request.metadata.iter().map(|it| Ok((of(it.r#type)?, &*it.key, &*it.value)));
        let metadata = metadata.collect::<Result<Vec<_>, String>>()?;
        let timeout = match request.timeout_sec {
            0 => self.default_timeout,
            seconds => Duration::from_secs(seconds.try_into().map_err(|_| "timeout_sec is negative")?),
        };
        let methods = methods(&types, metadata.into_iter(), timeout)?;
        *self.methods.lock().unwrap_or_else(PoisonError::into_inner) = methods;
        Ok(())
    }

    fn current(&self) -> Arc<[Method]> {
        self.methods.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn methods<'a>(
    kinds: &[RpcType],
    metadata: impl Iterator<Item = (RpcType, &'a str, &'a str)> + Clone,
    timeout: Duration,
) -> Result<Arc<[Method]>, String> {
    let method = |kind: &RpcType| {
        let mut map = MetadataMap::new();
        for (_, key, value) in metadata.clone().filter(|(of, ..)| of == kind) {
            let name: AsciiMetadataKey = key.parse().map_err(|error| format!("{key:?}: {error}"))?;
            let value: AsciiMetadataValue = value.parse().map_err(|error| format!("{value:?}: {error}"))?;
            map.append(name, value);
        }
        Ok(Method { kind: *kind, metadata: map, timeout })
    };
    kinds.iter().map(method).collect()
}

impl Calls {
    /// Makes calls at the configured rate, however many of them run. Returns the first failure that ends the program.
    pub(crate) async fn run(self) -> Status {
        let rate = f64::from(self.args.qps) * self.channels.len() as f64;
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let has_succeeded = Arc::new(AtomicBool::new(false));
        let (failures, mut failed) = mpsc::unbounded_channel();
        for channel in self.channels.iter().cycle() {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(status) = failed.recv() => return status,
            }
            let methods = self.settings.current();
            for place in 0..methods.len() {
                let call = Call {
                    args: self.args.clone(),
                    channel: channel.clone(),
                    methods: methods.clone(),
                    place,
                };
                // It is counted when it is due, not when its task has begun.
                let (begun, stats) = (self.stats.begin(methods[place].kind), self.stats.clone());
                let (failures, has_succeeded) = (failures.clone(), has_succeeded.clone());
                tokio::spawn(async move {
                    let (status, outcome) = call.make().await;
                    stats.end(begun, &outcome);
                    if outcome.is_success {
                        has_succeeded.store(true, Ordering::Relaxed);
                    } else if call.args.output.fails_on_failure && has_succeeded.load(Ordering::Relaxed) {
                        // The program ends with the first one.
                        let _ = failures.send(status);
                    }
                });
            }
        }
        Status::internal("there is no channel")
    }
}

/// One call.
struct Call {
    args: Arc<Args>,
    channel: Channel,
    methods: Arc<[Method]>,
    place: usize,
}

/// A response with the metadata before and after it.
struct Complete<R> {
    headers: MetadataMap,
    message: R,
    trailers: MetadataMap,
}

impl Call {
    /// Makes it, and prints what the flags ask for.
    async fn make(&self) -> (Status, Outcome) {
        let method = &self.methods[self.place];
        let (name, output) = (method.kind.method(), self.args.output);
        if output.logs_calls {
            eprintln!("{name} begins");
        }
        let (status, outcome) = self.outcome(method).await;
        if output.logs_calls {
            eprintln!("{name} ends: {:?} {}", status.code(), status.message());
        }
        if output.prints_response {
            let from = outcome.hostname.as_deref().unwrap_or("an unknown backend");
            print_line(format_args!("{name}: {:?} from {from}", status.code()));
        }
        (status, outcome)
    }

    async fn outcome(&self, method: &Method) -> (Status, Outcome) {
        let (status, headers, trailers, hostname) = match self.response(method).await {
            Ok(it) => (Status::new(Code::Ok, ""), it.headers, it.trailers, it.message.hostname),
            Err(status) => {
                let trailers = status.metadata().clone();
                (status, MetadataMap::new(), trailers, String::new())
            }
        };
        // The header comes first: servers send it with EmptyCall, too.
        let of_header = headers.get("hostname").and_then(|name| name.to_str().ok());
        let hostname = of_header.map_or(hostname, str::to_owned);
        let hostname = Some(hostname).filter(|name| !name.is_empty());
        let code = status.code();
        let is_success = code == self.args.expect_status;
        (status, Outcome { code, is_success, hostname, headers, trailers })
    }

    async fn response(&self, method: &Method) -> Result<Complete<SimpleResponse>, Status> {
        match method.kind {
            RpcType::EmptyCall => {
                let Complete { headers, message: Empty {}, trailers } =
                    self.send(method, EMPTY_CALL, Empty {}).await?;
                Ok(Complete { headers, message: SimpleResponse::default(), trailers })
            }
            RpcType::UnaryCall => {
                let size = self.args.request_payload_size;
                let request = SimpleRequest {
                    response_size: self.args.response_payload_size,
                    payload: (size > 0).then(|| Payload { body: vec![0; size] }),
                    fill_server_id: true,
                };
                self.send(method, UNARY_CALL, request).await
            }
        }
    }

    /// A unary call is a stream of one response, by which the headers are told from the trailers.
    async fn send<Q, R>(&self, method: &Method, path: &'static str, message: Q) -> Result<Complete<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        let Ok(()) = grpc.ready().await;
        let mut request = Request::new(message);
        *request.metadata_mut() = method.metadata.clone();
        request.set_timeout(method.timeout);
        let path = PathAndQuery::from_static(path);
        let response = grpc.server_streaming(request, path, Proto::<Q, R>::new()).await?;
        let (headers, mut stream, _) = response.into_parts();
        let message =
            stream.message().await?.ok_or_else(|| Status::internal("a response without a message"))?;
        let trailers = stream.trailers().await?.unwrap_or_default();
        Ok(Complete { headers, message, trailers })
    }
}

const EMPTY_CALL: &str = "/grpc.testing.TestService/EmptyCall";
const UNARY_CALL: &str = "/grpc.testing.TestService/UnaryCall";
