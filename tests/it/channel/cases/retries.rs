//! Retries by the policy of a route.

use futures_util::future::join_all;
use tonic::Code;
use xdskit::pb::{
    envoy::config::route::v3::{RetryPolicy, route::Action},
    google::protobuf::UInt32Value,
};

use super::*;
use crate::channel::backend::FIFTH;

#[tokio::test]
async fn ch12_retry_succeeds_with_the_fifth_attempt_and_not_with_the_fourth() {
    let backends = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&backends[0], &backends[1]]).await;
    for (num_retries, expected) in [(3, Some(Code::Unavailable)), (4, None)] {
        let route = route::prefix("").cluster("cart").edit(|route| {
            let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
            let num_retries = Some(UInt32Value { value: num_retries });
            let retry_on = "unavailable".to_owned();
            action.retry_policy = Some(RetryPolicy { retry_on, num_retries, ..RetryPolicy::default() });
        });
        mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
        let code = || async {
            let outcome = call(&mesh.channel, FIFTH, Request::new("hello".into())).await;
            outcome.err().map(|status| status.code())
        };
        // Until the policy is known, calls have that of the one before.
        soon(async { while code().await != expected {} }).await;
        let codes = soon(join_all((0..100).map(|_| code()))).await;
        assert!(codes.iter().all(|code| *code == expected), "{num_retries} retries: {codes:?}");
    }
    let made: usize = backends.iter().map(Backend::calls).sum();
    assert!(made >= 100 * 4 + 100 * 5, "{made}");
}
