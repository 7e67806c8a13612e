use std::{convert::Infallible, future::Future, pin::Pin, task};

use bytes::Bytes;
use prost::Message;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{Body as HttpBody, BoxFuture, Service, StdError},
    server::{Grpc, NamedService, UnaryService},
};

use super::{ChannelzService, view::View};
use crate::{
    codec::RawCodec,
    pb::grpc::channelz::v1::{
        GetChannelRequest, GetChannelResponse, GetServersResponse, GetSocketRequest, GetSocketResponse,
        GetSubchannelRequest, GetSubchannelResponse, GetTopChannelsRequest, GetTopChannelsResponse,
    },
};

impl<B> Service<http::Request<B>> for ChannelzService
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path();
        let method =
            path.strip_prefix('/').and_then(|path| path.strip_prefix(Self::NAME)).and_then(Method::of);
        let Some(method) = method else {
            let reason = format!("{path} is not served");
            return Box::pin(async { Ok(Status::unimplemented(reason).into_http()) });
        };
        let query = Query { service: self.clone(), method };
        Box::pin(async { Ok(Grpc::new(RawCodec).unary(query, request).await) })
    }
}

impl NamedService for ChannelzService {
    const NAME: &'static str = "grpc.channelz.v1.Channelz";
}

/// A method of the service. All of them are unary.
#[derive(Debug, Clone, Copy)]
enum Method {
    TopChannels,
    Channel,
    Subchannel,
    Socket,
    Servers,
    /// A server, or the sockets of one, of which there are none.
    OfServer,
}

impl Method {
    /// The method of a path after the name of the service.
    fn of(path: &str) -> Option<Self> {
        match path {
            "/GetTopChannels" => Some(Self::TopChannels),
            "/GetChannel" => Some(Self::Channel),
            "/GetSubchannel" => Some(Self::Subchannel),
            "/GetSocket" => Some(Self::Socket),
            "/GetServers" => Some(Self::Servers),
            "/GetServer" | "/GetServerSockets" => Some(Self::OfServer),
            _ => None,
        }
    }
}

/// A call of a method.
struct Query {
    service: ChannelzService,
    method: Method,
}

impl UnaryService<Bytes> for Query {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (service, method) = (self.service.clone(), self.method);
        Box::pin(async move { service.answer(method, request.into_inner()).await.map(Response::new) })
    }
}

impl ChannelzService {
    /// Responds to a request.
    async fn answer(&self, method: Method, request: Bytes) -> Result<Bytes, Status> {
        match method {
            Method::TopChannels => self.top_channels(decoded(request)?).await.map(encoded),
            Method::Channel => self.channel(decoded(request)?).await.map(encoded),
            Method::Subchannel => self.subchannel(decoded(request)?).await.map(encoded),
            Method::Socket => self.socket(decoded(request)?).await.map(encoded),
            Method::Servers => Ok(encoded(GetServersResponse { end: true })),
            Method::OfServer => Err(Status::not_found("this process shows no servers")),
        }
    }

    async fn top_channels(&self, request: GetTopChannelsRequest) -> Result<GetTopChannelsResponse, Status> {
        let GetTopChannelsRequest { start_channel_id, max_results } = request;
        let most = match usize::try_from(max_results) {
            Ok(0) => PAGE,
            Ok(most) => most.min(PAGE),
            Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "max_results is {max_results}, and at least 0"
                )));
            }
        };
        let (views, end) = self.views_from(start_channel_id, most).await;
        Ok(GetTopChannelsResponse { channel: views.iter().map(|view| view.channel.clone()).collect(), end })
    }

    async fn channel(&self, request: GetChannelRequest) -> Result<GetChannelResponse, Status> {
        let GetChannelRequest { channel_id } = request;
        let view = match self.view(channel_id).await {
            Some(view) => Some(view),
            None => self.view_with(|ids| ids.has_nested(channel_id)).await,
        };
        let channel = found(view, "channel", channel_id, |view| view.channel_with(channel_id).cloned())?;
        Ok(GetChannelResponse { channel: Some(channel) })
    }

    async fn subchannel(&self, request: GetSubchannelRequest) -> Result<GetSubchannelResponse, Status> {
        let GetSubchannelRequest { subchannel_id: id } = request;
        let view = self.view_with(|ids| ids.has_subchannel(id)).await;
        let subchannel = found(view, "subchannel", id, |view| view.subchannels.get(&id).cloned())?;
        Ok(GetSubchannelResponse { subchannel: Some(subchannel) })
    }

    async fn socket(&self, request: GetSocketRequest) -> Result<GetSocketResponse, Status> {
        let GetSocketRequest { socket_id: id } = request;
        let view = self.view_with(|ids| ids.has_socket(id)).await;
        let socket = found(view, "socket", id, |view| view.sockets.get(&id).cloned())?;
        Ok(GetSocketResponse { socket: Some(socket) })
    }
}

/// A part of a channel.
fn found<T, V: AsRef<View>>(
    view: Option<V>,
    kind: &str,
    id: i64,
    part: impl FnOnce(&View) -> Option<T>,
) -> Result<T, Status> {
    let part = view.and_then(|view| part(view.as_ref()));
    part.ok_or_else(|| Status::not_found(format!("no {kind} has the id {id}, or none any more")))
}

fn decoded<M: Message + Default>(request: Bytes) -> Result<M, Status> {
    M::decode(request)
        .map_err(|error| Status::invalid_argument(format!("not a request of channelz: {error}")))
}

fn encoded(response: impl Message) -> Bytes {
    response.encode_to_vec().into()
}

/// The most channels of a response.
const PAGE: usize = 100;
