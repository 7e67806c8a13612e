//! Retries by the policy of a route.

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
        let mut calls = 0;
        while calls < 50 {
            let outcome = call(&mesh.channel, FIFTH, Request::new("hello".into())).await;
            let code = outcome.err().map(|status| status.code());
            if calls == 0 && code != expected {
                // The update is on its way.
                continue;
            }
            assert_eq!(code, expected, "{num_retries} retries");
            calls += 1;
        }
    }
    let made: usize = backends.iter().map(Backend::calls).sum();
    assert!(made >= 50 * 4 + 50 * 5, "{made}");
}
