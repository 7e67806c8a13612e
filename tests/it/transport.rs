//! The transport of a client as the parameter of a test.
//!
//! A test of the suite is a function of a [`Transport`]; `#[apply(..)]` makes one test of it for each transport of a set:
//!
//! | attribute | sets | for tests of |
//! |---|---|---|
//! | `#[apply(streams)]` | `sotw`, `delta`, `per_type_sotw`, `per_type_delta` | streams |
//! | `#[apply(aggregated)]` | `sotw`, `delta` | types of an application, which need an aggregated stream |
//! | `#[apply(servers)]` | those of `streams` and `rest` | management servers |
//! | `#[apply(every_transport)]` | these and `files` | the content of resources |
//! | `#[apply(polls)]` | `rest` | polling |
//!
//! The name of the transport is the last part of the test's name: `cargo test --test it ::delta` runs those of one transport,
//! `cargo test --test it suite::watch` those of one topic.

use std::{sync::Arc, time::Duration};

use xdskit::{
    Client,
    client::ClientBuilder,
    config::{ApiType, Bootstrap, Polling},
    error::Code,
    resource::VirtualHost,
};

use crate::common::{Serves, bootstrap, bridge};

/// A transport of resources to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// State of the world, aggregated.
    Sotw,
    /// Incremental, aggregated.
    Delta,
    /// State of the world, one stream for each resource type.
    PerTypeSotw,
    /// Incremental, one stream for each resource type.
    PerTypeDelta,
    /// Polling over REST.
    Rest,
    /// Files in place of a management server.
    Files,
}

impl Transport {
    /// The API type of the client. Files have none of their own: their content is the state of the world.
    pub(crate) fn api_type(self) -> ApiType {
        match self {
            Self::Sotw | Self::Files => ApiType::AggregatedGrpc,
            Self::Delta => ApiType::AggregatedDeltaGrpc,
            Self::PerTypeSotw => ApiType::Grpc,
            Self::PerTypeDelta => ApiType::DeltaGrpc,
            Self::Rest => ApiType::Rest,
        }
    }

    pub(crate) fn is_polled(self) -> bool {
        self == Self::Rest
    }

    /// A builder of a client of the server, or of files with the resources of its control plane.
    pub(crate) fn builder_of(self, server: &impl Serves) -> ClientBuilder {
        match self {
            Self::Files => bridge::builder_of(server),
            Self::Sotw | Self::Delta | Self::PerTypeSotw | Self::PerTypeDelta | Self::Rest => {
                self.builder(server.uri())
            }
        }
    }

    pub(crate) fn builder(self, uri: impl Into<String>) -> ClientBuilder {
        self.builder_from(bootstrap(uri))
    }

    pub(crate) fn builder_from(self, bootstrap: impl Into<Arc<Bootstrap>>) -> ClientBuilder {
        assert_ne!(self, Self::Files, "no server is involved");
        let polling = Polling::every(Duration::from_millis(10)).with_request_timeout(Duration::from_secs(10));
        Client::builder(bootstrap).api_type(self.api_type()).polling(polling)
    }

    pub(crate) fn client(self, uri: impl Into<String>) -> Client {
        self.builder(uri).build().unwrap()
    }

    /// Whether virtual hosts are available: in the incremental variant alone (B3.5). The error of a watch elsewhere is checked here.
    pub(crate) async fn has_virtual_hosts(self) -> bool {
        if self == Self::Files || self.api_type().is_delta() {
            return true;
        }
        let refused = self.client("127.0.0.1:1").watch::<VirtualHost>("routes/shop").ready().await;
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
        false
    }
}

/// One test for each listed transport, in a module with the name of the function.
macro_rules! tests_of {
    ($cases:tt $(#[$attribute:meta])* async fn $name:ident($($argument:tt)*) $body:block) => {
        $(#[$attribute])*
        async fn $name($($argument)*) $body
        tests_of! { @cases $cases [tokio::test] $name [async] [.await] }
    };
    ($cases:tt $(#[$attribute:meta])* fn $name:ident($($argument:tt)*) $body:block) => {
        $(#[$attribute])*
        fn $name($($argument)*) $body
        tests_of! { @cases $cases [test] $name [] [] }
    };
    (@cases [$($case:ident: $transport:ident),*] $test:tt $name:ident $fn:tt $call:tt) => {
        mod $name {
            $(tests_of! { @case $case $transport $test $name $fn $call })*
        }
    };
    (@case $case:ident $transport:ident [$test:meta] $name:ident [$($async:tt)?] [$($await:tt)*]) => {
        #[$test]
        $($async)? fn $case() {
            super::$name($crate::transport::Transport::$transport)$($await)*;
        }
    };
}

macro_rules! streams {
    ($($test:tt)*) => {
        tests_of! {
            [sotw: Sotw, delta: Delta, per_type_sotw: PerTypeSotw, per_type_delta: PerTypeDelta] $($test)*
        }
    };
}

macro_rules! aggregated {
    ($($test:tt)*) => {
        tests_of! { [sotw: Sotw, delta: Delta] $($test)* }
    };
}

macro_rules! on_threads {
    ($cases:tt $(#[$attribute:meta])* async fn $name:ident($($argument:tt)*) $body:block) => {
        $(#[$attribute])*
        async fn $name($($argument)*) $body
        tests_of! { @cases $cases [tokio::test(flavor = "multi_thread", worker_threads = 2)] $name [async] [.await] }
    };
}

/// The same on a runtime with two threads beside that of the test.
macro_rules! streams_on_threads {
    ($($test:tt)*) => {
        on_threads! {
            [sotw: Sotw, delta: Delta, per_type_sotw: PerTypeSotw, per_type_delta: PerTypeDelta] $($test)*
        }
    };
}

macro_rules! servers {
    ($($test:tt)*) => {
        tests_of! {
            [sotw: Sotw, delta: Delta, per_type_sotw: PerTypeSotw, per_type_delta: PerTypeDelta, rest: Rest]
            $($test)*
        }
    };
}

macro_rules! every_transport {
    ($($test:tt)*) => {
        tests_of! {
            [
                sotw: Sotw, delta: Delta, per_type_sotw: PerTypeSotw, per_type_delta: PerTypeDelta, rest: Rest,
                files: Files
            ] $($test)*
        }
    };
}

macro_rules! polls {
    ($($test:tt)*) => {
        tests_of! { [rest: Rest] $($test)* }
    };
}
