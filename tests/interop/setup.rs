//! What a test runs against.

use std::ops::Deref;

use xdskit::{
    Client, Names,
    client::{ClientBuilder, WatchAll},
    config::ApiType,
    control_plane::Variant,
    resource::{Cluster, Listener},
};

/// A management server, and the variant of the protocol that clients speak with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) server: Server,
    pub(crate) variant: Variant,
}

/// A management server that others wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// go-control-plane with a snapshot.
    Snapshot,
    /// go-control-plane with a collection for each type.
    Linear,
    /// java-control-plane with a snapshot.
    Java,
}

impl Setup {
    pub(crate) fn snapshot_sotw() -> Self {
        Self { server: Server::Snapshot, variant: Variant::Sotw }
    }

    pub(crate) fn snapshot_delta() -> Self {
        Self { server: Server::Snapshot, variant: Variant::Delta }
    }

    pub(crate) fn linear_sotw() -> Self {
        Self { server: Server::Linear, variant: Variant::Sotw }
    }

    pub(crate) fn linear_delta() -> Self {
        Self { server: Server::Linear, variant: Variant::Delta }
    }

    pub(crate) fn java_sotw() -> Self {
        Self { server: Server::Java, variant: Variant::Sotw }
    }

    pub(crate) fn java_delta() -> Self {
        Self { server: Server::Java, variant: Variant::Delta }
    }

    pub(crate) fn is_delta(self) -> bool {
        self.variant == Variant::Delta
    }

    pub(crate) fn api_type(self) -> ApiType {
        match self.variant {
            Variant::Sotw => ApiType::AggregatedGrpc,
            Variant::Delta => ApiType::AggregatedDeltaGrpc,
        }
    }

    /// A client of such a server.
    pub(crate) fn client(self, builder: ClientBuilder) -> TestClient {
        let client = builder.build().expect("a client can be built");
        let is_needed = self.server == Server::Java && self.is_delta();
        let all = is_needed.then(|| (client.watch_all(Names::All), client.watch_all(Names::All)));
        TestClient { client, _all: all }
    }
}

/// A client with what it must hold so that the server serves it.
pub(crate) struct TestClient {
    client: Client,
    /// Over the incremental variant, java-control-plane takes every client for one that wants all listeners and clusters,
    /// and does not answer when one that was sent them asks for one by its name.
    _all: Option<(WatchAll<Listener>, WatchAll<Cluster>)>,
}

impl Deref for TestClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Makes tests of functions that take a [`Setup`], on some setups: the test `restart` on `java_sotw` is called
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

/// The same on all setups.
macro_rules! on_all {
    ($($test:ident),+ $(,)?) => { $crate::setup::on! {
        [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw, java_delta]: $($test),+
     } };
}

/// The same on all but one: over the incremental variant, java-control-plane serves but those that ask for all listeners and
/// clusters (see [`TestClient`]), never says what has been removed while a client was away, and more.
macro_rules! on_all_but_java_delta {
    ($($test:ident),+ $(,)?) => { $crate::setup::on! {
        [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw]: $($test),+
    } };
}

pub(crate) use {on, on_all, on_all_but_java_delta};
