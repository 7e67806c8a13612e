//! The servers and clients of the tests.

use std::ops::Deref;

use xdskit::{
    Client, ResourceSelector,
    client::{ClientBuilder, WatchAll},
    config::ApiType,
    resource::{Cluster, Listener},
};

/// A management server, and the variant of the protocol of its clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) api_type: ApiType,
}

/// A management server: one of another project, or one of this repository with restrictions of real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// go-control-plane with a snapshot.
    Snapshot,
    /// go-control-plane 0.12.0 with a snapshot: until 0.13.1 its streams keep the names that they have sent, and send none of them again.
    Old,
    /// go-control-plane with a snapshot, in ADS mode.
    Ads,
    /// go-control-plane with a collection for each type.
    Linear,
    /// java-control-plane with a snapshot.
    Java,
    /// Ignores the names in a NACK, as istiod and Consul do.
    IgnoresNamesInNack,
    /// Treats `*` as a name, as Consul does.
    LegacyWildcard,
    /// Ends the stream at a request for an unknown type, as istiod does.
    UnknownType,
}

impl Setup {
    pub(crate) fn snapshot_sotw() -> Self {
        Self { server: Server::Snapshot, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn snapshot_delta() -> Self {
        Self { server: Server::Snapshot, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn old_sotw() -> Self {
        Self { server: Server::Old, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn old_delta() -> Self {
        Self { server: Server::Old, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn ads_sotw() -> Self {
        Self { server: Server::Ads, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn ads_delta() -> Self {
        Self { server: Server::Ads, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn linear_sotw() -> Self {
        Self { server: Server::Linear, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn linear_delta() -> Self {
        Self { server: Server::Linear, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn java_sotw() -> Self {
        Self { server: Server::Java, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn java_delta() -> Self {
        Self { server: Server::Java, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn snapshot_types_sotw() -> Self {
        Self { server: Server::Snapshot, api_type: ApiType::Grpc }
    }

    pub(crate) fn snapshot_types_delta() -> Self {
        Self { server: Server::Snapshot, api_type: ApiType::DeltaGrpc }
    }

    pub(crate) fn linear_types_sotw() -> Self {
        Self { server: Server::Linear, api_type: ApiType::Grpc }
    }

    pub(crate) fn linear_types_delta() -> Self {
        Self { server: Server::Linear, api_type: ApiType::DeltaGrpc }
    }

    pub(crate) fn snapshot_rest() -> Self {
        Self { server: Server::Snapshot, api_type: ApiType::Rest }
    }

    pub(crate) fn linear_rest() -> Self {
        Self { server: Server::Linear, api_type: ApiType::Rest }
    }

    pub(crate) fn ignores_names_in_nack_sotw() -> Self {
        Self { server: Server::IgnoresNamesInNack, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn ignores_names_in_nack_delta() -> Self {
        Self { server: Server::IgnoresNamesInNack, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn legacy_wildcard_sotw() -> Self {
        Self { server: Server::LegacyWildcard, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn legacy_wildcard_delta() -> Self {
        Self { server: Server::LegacyWildcard, api_type: ApiType::AggregatedDeltaGrpc }
    }

    pub(crate) fn unknown_type_sotw() -> Self {
        Self { server: Server::UnknownType, api_type: ApiType::AggregatedGrpc }
    }

    pub(crate) fn unknown_type_delta() -> Self {
        Self { server: Server::UnknownType, api_type: ApiType::AggregatedDeltaGrpc }
    }

    /// The variants of the protocol that it serves.
    pub(crate) fn ways(self) -> impl Iterator<Item = ApiType> {
        let over_streams =
            [ApiType::AggregatedGrpc, ApiType::AggregatedDeltaGrpc, ApiType::Grpc, ApiType::DeltaGrpc];
        over_streams.into_iter().chain((self.server == Server::Snapshot).then_some(ApiType::Rest))
    }

    pub(crate) fn is_delta(self) -> bool {
        self.api_type.is_delta()
    }

    pub(crate) fn is_rest(self) -> bool {
        self.api_type == ApiType::Rest
    }

    /// A client of such a server.
    pub(crate) fn client(self, builder: ClientBuilder) -> TestClient {
        let client = builder.build().expect("a client can be built");
        let is_needed = self.server == Server::Java && self.is_delta();
        let all = is_needed
            .then(|| (client.watch_all(ResourceSelector::All), client.watch_all(ResourceSelector::All)));
        TestClient { client, _all: all }
    }
}

/// A client with the watches that it needs to be served.
pub(crate) struct TestClient {
    client: Client,
    /// In the incremental variant, java-control-plane treats every client as a subscriber of all listeners and
    /// clusters, and does not respond when a client that was sent them subscribes to one by its name.
    _all: Option<(WatchAll<Listener>, WatchAll<Cluster>)>,
}

impl Deref for TestClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Generates tests from functions with a [`Setup`], for some setups: the test `restart` on `java_sotw` is called
/// `restart::java_sotw`.
macro_rules! on {
    ($setups:tt: $($test:ident),+ $(,)?) => { $( $crate::setup::on! { @ $test $setups } )+ };
    (@ $test:ident [$($setup:ident),+]) => {
        mod $test {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $setup() {
                    super::$test($crate::setup::Setup::$setup()).await;
                }
            )+
        }
    };
}

/// The same for all setups.
macro_rules! on_all {
    ($($test:ident),+ $(,)?) => { $crate::setup::on! {
        [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw, java_delta]: $($test),+
     } };
}

/// The same for all setups, and with a stream for each type, and over REST, which go-control-plane serves from
/// snapshots alone.
macro_rules! on_all_ways {
    ($($test:ident),+ $(,)?) => { $crate::setup::on! {
        [
            snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw, java_delta, snapshot_types_sotw,
            snapshot_types_delta, linear_types_sotw, linear_types_delta, snapshot_rest
        ]: $($test),+
    } };
}

/// The same for all setups but one: in the incremental variant, java-control-plane only serves clients that subscribe
/// to all listeners and clusters (see [`TestClient`]), never reports resources that were removed while a client was
/// disconnected, and more.
macro_rules! on_all_but_java_delta {
    ($($test:ident),+ $(,)?) => { $crate::setup::on! {
        [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw]: $($test),+
    } };
}

pub(crate) use {on, on_all, on_all_but_java_delta, on_all_ways};
