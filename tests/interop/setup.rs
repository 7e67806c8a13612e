//! What a test runs against.

/// A management server, and the variant of the protocol that clients speak with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) server: Server,
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
        Self { server: Server::Snapshot }
    }

    pub(crate) fn linear_sotw() -> Self {
        Self { server: Server::Linear }
    }

    pub(crate) fn java_sotw() -> Self {
        Self { server: Server::Java }
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
    ($($test:ident),+ $(,)?) => { $crate::setup::on! { [snapshot_sotw, linear_sotw, java_sotw]: $($test),+ } };
}

pub(crate) use {on, on_all};
