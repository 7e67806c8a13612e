//! The channels of a process, as operators see them: A14.

use tonic::Code;
use xdskit::{
    channelz::ChannelzService,
    pb::grpc::channelz::v1::{
        self as pb, GetChannelRequest, GetChannelResponse, GetServersResponse, GetSocketRequest,
        GetSocketResponse, GetSubchannelRequest, GetSubchannelResponse, GetTopChannelsRequest,
        GetTopChannelsResponse, address::Address, channel_connectivity_state::State, security::Model,
    },
};

use super::{
    backend::{FAIL, HOLD},
    calls::call_owned,
    security::{Pki, SERVER, upstream},
    *,
};

/// A tool that queries the service.
struct Tool {
    service: ChannelzService,
}

impl Tool {
    fn of(channels: &[&Channel]) -> Self {
        let service = ChannelzService::new();
        channels.iter().for_each(|channel| service.add(channel));
        Self { service }
    }

    async fn query<R: Message + Default>(&self, method: &str, request: impl Message) -> Result<R, Status> {
        let path = format!("/grpc.channelz.v1.Channelz/{method}").parse().unwrap();
        let request = Request::new(request.encode_to_vec().into());
        let response = Grpc::new(self.service.clone()).unary(request, path, Raw).await?;
        Ok(R::decode(response.into_inner()).unwrap())
    }

    async fn page(&self, start_channel_id: i64, max_results: i64) -> GetTopChannelsResponse {
        let request = GetTopChannelsRequest { start_channel_id, max_results };
        self.query("GetTopChannels", request).await.unwrap()
    }

    /// The only channel, once it is as expected.
    async fn channel_that(&self, is_it: impl Fn(&pb::Channel) -> bool) -> pb::Channel {
        soon(async {
            loop {
                let channel = self.page(0, 0).await.channel.remove(0);
                if is_it(&channel) {
                    return channel;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    async fn subchannel(&self, id: i64) -> Result<pb::Subchannel, Status> {
        let request = GetSubchannelRequest { subchannel_id: id };
        let response: GetSubchannelResponse = self.query("GetSubchannel", request).await?;
        Ok(response.subchannel.unwrap())
    }

    async fn subchannels(&self, channel: &pb::Channel) -> Vec<pb::Subchannel> {
        let mut all = Vec::new();
        for subchannel in &channel.subchannel_ref {
            all.push(self.subchannel(subchannel.subchannel_id).await.unwrap());
        }
        all
    }

    async fn socket(&self, id: i64) -> Result<pb::Socket, Status> {
        let response: GetSocketResponse = self.query("GetSocket", GetSocketRequest { socket_id: id }).await?;
        Ok(response.socket.unwrap())
    }
}

fn data(channel: &pb::Channel) -> &pb::ChannelData {
    channel.data.as_ref().unwrap()
}

fn state(data: &pb::ChannelData) -> State {
    data.state.unwrap().state()
}

/// Calls started, succeeded and failed.
fn counts(data: &pb::ChannelData) -> [i64; 3] {
    [data.calls_started, data.calls_succeeded, data.calls_failed]
}

#[tokio::test]
async fn a14_a_channel_is_shown_with_its_subchannels_and_sockets() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one, &two]).await;
    let tool = Tool::of(&[&mesh.channel]);
    let idle = tool.channel_that(|_| true).await;
    assert_eq!((state(data(&idle)), idle.subchannel_ref.len()), (State::Idle, 0));

    mesh.reach(&["one", "two"]).await;
    mesh.call(FAIL, "no").await.unwrap_err();
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    let ready = tool.channel_that(|it| data(it).calls_failed == 1 && it.subchannel_ref.len() == 2).await;
    assert_eq!(ready.r#ref, idle.r#ref, "the id is kept");
    assert_eq!((&*data(&ready).target, state(data(&ready))), ("xds:///shop", State::Ready));
    let [started, succeeded, _] = counts(data(&ready));
    assert!(succeeded >= 2 && (started - succeeded - 1..=started - succeeded).contains(&1), "{ready:?}");

    let mut targets = BTreeSet::new();
    for subchannel in tool.subchannels(&ready).await {
        let of = subchannel.data.unwrap();
        assert_eq!(state(&of), State::Ready);
        targets.insert(of.target.clone());
        let [socket_ref] = &*subchannel.socket_ref else { panic!("{:?}", subchannel.socket_ref) };
        let socket = tool.socket(socket_ref.socket_id).await.unwrap();
        assert_eq!(address_of(socket.remote), of.target);
        assert!(address_of(socket.local).starts_with("127.0.0.1:") && socket.security.is_none());
        let streams = socket.data.unwrap();
        assert!(streams.streams_succeeded >= 1 && streams.streams_failed == 0, "{streams:?}");
        assert_eq!(of.calls_started, streams.streams_started);
    }
    assert_eq!(targets, BTreeSet::from([one.text(), two.text()]));
    one.release();
    two.release();
    soon(held).await.unwrap().unwrap();
}

/// The text of an address.
fn address_of(address: Option<pb::Address>) -> String {
    let Some(Address::TcpipAddress(tcp)) = address.unwrap().address else { panic!("no TCP") };
    let ip: [u8; 4] = tcp.ip_address[..].try_into().unwrap();
    std::net::SocketAddr::from((ip, tcp.port.try_into().unwrap())).to_string()
}

#[tokio::test]
async fn a14_a_lost_endpoint_and_a_channel_that_has_ended_are_not_found() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one, &two]).await;
    let tool = Tool::of(&[&mesh.channel, &mesh.channel.clone()]);
    mesh.reach(&["one", "two"]).await;
    let both = tool.channel_that(|it| it.subchannel_ref.len() == 2).await;
    let subchannels = tool.subchannels(&both).await;
    mesh.apply(cart(&[&one])).await;
    let left = tool.channel_that(|it| it.subchannel_ref.len() == 1).await;
    for subchannel in subchannels {
        let id = subchannel.r#ref.unwrap().subchannel_id;
        let is_kept = left.subchannel_ref[0].subchannel_id == id;
        assert_eq!(is_kept, subchannel.data.unwrap().target == one.text(), "its id is kept");
        let socket = subchannel.socket_ref[0].socket_id;
        for result in [tool.subchannel(id).await.map(drop), tool.socket(socket).await.map(drop)] {
            assert_eq!(result.err().map(|status| status.code()), (!is_kept).then_some(Code::NotFound));
        }
    }
    let of = GetChannelRequest { channel_id: left.r#ref.unwrap().channel_id };
    let shown: GetChannelResponse = tool.query("GetChannel", of).await.unwrap();
    assert_eq!(shown.channel.unwrap().subchannel_ref, left.subchannel_ref);
    let Mesh { channel, .. } = mesh;
    drop(channel);
    soon(async {
        while !tool.page(0, 0).await.channel.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = tool.query::<GetChannelResponse>("GetChannel", of).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[tokio::test]
async fn a14_pages_have_at_most_so_many_channels_in_the_order_of_their_ids() {
    let mesh = Mesh::start(&[]).await;
    let channels: Vec<_> = (0..5).map(|_| mesh.client.channel("xds:///shop").build().unwrap()).collect();
    let tool = Tool::of(&channels.iter().collect::<Vec<_>>());
    let (mut seen, mut start) = (Vec::new(), 0);
    let pages = loop {
        let page = tool.page(start, 2).await;
        assert!(page.channel.len() <= 2);
        seen.extend(page.channel.iter().map(|it| it.r#ref.as_ref().unwrap().channel_id));
        start = seen.last().unwrap() + 1;
        if page.end {
            break seen.len().div_ceil(2);
        }
    };
    assert_eq!((seen.len(), pages), (5, 3));
    assert!(seen.is_sorted() && seen[0] > 0, "{seen:?}");
    let page = tool.page(0, 5).await;
    assert!(page.end && page.channel.len() == 5);
    let error = tool
        .query::<GetTopChannelsResponse>(
            "GetTopChannels",
            GetTopChannelsRequest { start_channel_id: 0, max_results: -1 },
        )
        .await
        .unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "max_results is -1, and at least 0"));
    let servers: GetServersResponse = tool.query("GetServers", ()).await.unwrap();
    assert!(servers.end);
    for (method, code) in [("GetServer", Code::NotFound), ("GetServers2", Code::Unimplemented)] {
        assert_eq!(tool.query::<GetServersResponse>(method, ()).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn a14_a_socket_with_mutual_tls_shows_the_certificates_of_both_sides() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.mutual()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], true)), &[&one]).await;
    mesh.reach(&["one"]).await;
    let tool = Tool::of(&[&mesh.channel]);
    let channel = tool.channel_that(|it| !it.subchannel_ref.is_empty()).await;
    let subchannel = tool.subchannels(&channel).await.remove(0);
    let socket = tool.socket(subchannel.socket_ref[0].socket_id).await.unwrap();
    let Some(Model::Tls(tls)) = socket.security.unwrap().model else { panic!("no TLS") };
    assert_eq!(socket.remote_name, SERVER);
    assert!(tls.remote_certificate.len() > 100 && tls.remote_certificate[0] == 0x30, "DER");
    assert_eq!(tls.local_certificate, pki.client_certificate());
    assert!(format!("{:?}", tls.cipher_suite).contains("TLS"), "{:?}", tls.cipher_suite);
}
