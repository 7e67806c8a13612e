//! The channels to lookup services, as operators see them.

use super::*;
use crate::channel::LookupStatus;

impl Rig {
    async fn lookups(&self) -> Vec<LookupStatus> {
        self.mesh.channel.status().await.lookups
    }
}

#[tokio::test]
async fn rl16_the_status_has_the_cache_and_the_channel_of_each_plugin() {
    let mut rig = Rig::start("rl16_status", |_| {}).await;
    assert!(rig.lookups().await.is_empty(), "the channel is idle");
    rig.prosper().await;
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    let [status] = &*rig.lookups().await else { panic!("one plugin") };
    let counts = (status.cache_entries, status.cache_bytes, status.pending);
    // 512 bytes each, with the path, the key, its value of one letter, and the cluster.
    assert_eq!(counts, (3, 3 * (512 + 14 + 6 + 1 + rig.cluster("a").len()), 1));
    assert_eq!((&*status.plugin, &*status.service, &status.error), ("rls", "xds:///lookup", &None));
    let channel = status.channel.as_ref().unwrap();
    assert_eq!((&*channel.target, channel.state), ("xds:///lookup", ChannelState::Ready));
    assert_eq!((channel.calls, channel.calls_succeeded), (1, 3));
    let endpoint = channel.leaves[0].endpoints().next().unwrap();
    assert_eq!((endpoint.addresses.clone(), endpoint.connections.len()), (vec![rig.lookup.address], 1));
    let shown = rig.mesh.channel.status().await.to_string();
    let expected = "Lookups of rls by xds:///lookup: 3 entries of 1638 bytes, 1 lookups under way\n\
                    Channel xds:///lookup: READY, 1 calls, 0 of them waiting; 3 succeeded, 0 failed\n";
    assert!(shown.contains(expected), "{shown}");
    respond(received, &[rig.cluster("a")], "");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl16_the_status_tells_why_there_is_no_channel() {
    let limits = crate::channel::LookupLimits::new().with_plugins(1);
    let settings = |builder: ChannelBuilder| builder.lookup_limits(limits);
    let edit = |config: &mut RouteLookupConfig| config.lookup_service = "unix:///lookup".into();
    let mut rig = Rig::with("rl16_errors", Peer::start().await, settings, edit).await;
    rig.call_plain().await;
    rig.configure_each(&[("rls", ""), ("second", "/second")], edit);
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    let lookups = rig.lookups().await;
    let seen: Vec<_> =
        lookups.iter().map(|status| (&*status.plugin, &*status.service, status.channel.is_none())).collect();
    assert_eq!(seen, [("rls", "unix:///lookup", true), ("second", "", true)]);
    let errors: Vec<_> = lookups.iter().map(|status| status.error.as_deref().unwrap()).collect();
    assert!(errors[0].contains("\"unix:///lookup\" is no target of the schemes"), "{errors:?}");
    assert_eq!(errors[1], "the routes have more than 1 plugins, the maximum");
}

/// The service finds a channel to a lookup service, its subchannels and sockets, by the references to them.
#[cfg(feature = "channelz")]
#[tokio::test]
async fn rl16_channelz_has_the_channel_within_the_one_whose_calls_are_looked_up() {
    use tonic::{Request, client::Grpc};

    use crate::{channelz::ChannelzService, codec::RawCodec, pb::grpc::channelz::v1 as pb};

    async fn query<R: prost::Message + Default>(
        service: &ChannelzService,
        method: &str,
        request: impl prost::Message,
    ) -> R {
        let path = format!("/grpc.channelz.v1.Channelz/{method}").parse().unwrap();
        let request = Request::new(Bytes::from(request.encode_to_vec()));
        let response = Grpc::new(service.clone()).unary(request, path, RawCodec).await.unwrap();
        R::decode(response.into_inner()).unwrap()
    }

    let mut rig = Rig::start("rl16_channelz", |_| {}).await;
    rig.prosper().await;
    let service = ChannelzService::new();
    service.add(&rig.mesh.channel);
    let top: pb::GetTopChannelsResponse =
        query(&service, "GetTopChannels", pb::GetTopChannelsRequest::default()).await;
    let [channel] = &*top.channel else { panic!("{top:?}") };
    let [nested] = &*channel.channel_ref else { panic!("{channel:?}") };
    assert_eq!(nested.name, "xds:///lookup");
    let channel_id = nested.channel_id;
    let of: pb::GetChannelResponse =
        query(&service, "GetChannel", pb::GetChannelRequest { channel_id }).await;
    let channel = of.channel.unwrap();
    let data = channel.data.unwrap();
    assert_eq!((channel.r#ref.as_ref(), data.calls_succeeded), (Some(nested), 3));
    let [subchannel] = &*channel.subchannel_ref else { panic!("{:?}", channel.subchannel_ref) };
    assert_eq!(subchannel.name, rig.lookup.address.to_string());
    let subchannel_id = subchannel.subchannel_id;
    let of: pb::GetSubchannelResponse =
        query(&service, "GetSubchannel", pb::GetSubchannelRequest { subchannel_id }).await;
    let subchannel = of.subchannel.unwrap();
    let socket_id = subchannel.socket_ref[0].socket_id;
    let of: pb::GetSocketResponse = query(&service, "GetSocket", pb::GetSocketRequest { socket_id }).await;
    assert_eq!(of.socket.unwrap().data.unwrap().streams_succeeded, 3);
}
