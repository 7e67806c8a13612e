//! Unary calls, so many at a time.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codegen::StdError,
};

use super::{codec::Raw, echo};

/// What a round consists of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) calls: usize,
    pub(crate) in_flight: usize,
    /// Bytes of a message, in both directions.
    pub(crate) size: usize,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) error: Option<Status>,
}

impl Call {
    pub(crate) fn duration(&self) -> Duration {
        self.end - self.start
    }
}

/// The bounds of a client that is measured.
pub(crate) trait Caller:
    GrpcService<
        Body,
        Future: Send,
        Error: Into<StdError> + Send,
        ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<T> Caller for T where
    T: GrpcService<
            Body,
            Future: Send,
            Error: Into<StdError> + Send,
            ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        > + Clone
        + Send
        + 'static
{
}

/// Makes calls, each of as many tasks one after the other as are to be in flight.
pub(crate) async fn run<T: Caller>(client: &T, load: Load) -> Vec<Call> {
    run_while(client, (load.in_flight, load.size), so_many(load.calls)).await
}

/// Returns true for so many calls.
pub(crate) fn so_many(calls: usize) -> impl Fn() -> bool + Clone + Send + 'static {
    let left = Arc::new(AtomicUsize::new(calls));
    move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Makes calls of a size, so many at a time, as long as there are to be more.
pub(crate) async fn run_while<T: Caller>(
    client: &T,
    (in_flight, size): (usize, usize),
    more: impl Fn() -> bool + Clone + Send + 'static,
) -> Vec<Call> {
    let client = client.clone();
    repeat((in_flight, size), more, move |message| call(client.clone(), message)).await
}

/// Makes calls with a function, as [`run_while`] does.
pub(crate) async fn repeat<F: Future<Output = Call> + Send>(
    (in_flight, size): (usize, usize),
    more: impl Fn() -> bool + Clone + Send + 'static,
    call: impl Fn(Bytes) -> F + Clone + Send + 'static,
) -> Vec<Call> {
    let message = Bytes::from(vec![7; size]);
    let caller = || {
        let (call, message, more) = (call.clone(), message.clone(), more.clone());
        tokio::spawn(async move {
            let mut calls = Vec::new();
            while more() {
                calls.push(call(message.clone()).await);
            }
            calls
        })
    };
    let callers: Vec<_> = (0..in_flight).map(|_| caller()).collect();
    let mut calls = Vec::new();
    for caller in callers {
        calls.append(&mut caller.await.expect("it does not panic"));
    }
    calls
}

async fn call<T: Caller>(client: T, message: Bytes) -> Call {
    let (start, size) = (Instant::now(), message.len());
    let mut grpc = Grpc::new(client);
    let response = match grpc.ready().await {
        Ok(()) => grpc.unary(Request::new(message), PathAndQuery::from_static(echo::METHOD), Raw).await,
        Err(error) => Err(Status::from_error(error.into())),
    };
    let error = response.map(|response| assert_eq!(response.into_inner().len(), size)).err();
    Call { start, end: Instant::now(), error }
}

/// Fails if a call did.
pub(crate) fn assert_all_succeed(calls: &[Call]) {
    if let Some(error) = calls.iter().find_map(|call| call.error.as_ref()) {
        panic!("a call failed: {error}");
    }
}

/// A quantile of the durations, in nanoseconds.
pub(crate) fn quantile(calls: &[Call], quantile: f64) -> f64 {
    let mut all: Vec<_> = calls.iter().map(Call::duration).collect();
    all.sort_unstable();
    let place = (all.len() as f64 * quantile) as usize;
    all.get(place.min(all.len().saturating_sub(1))).map_or(f64::NAN, |it| it.as_nanos() as f64)
}
