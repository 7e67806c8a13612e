//! Sessions by cookies (A55, A60).

use base64::{Engine, engine::general_purpose::STANDARD};
use prost::Message;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{core::v3::TypedExtensionConfig, listener::v3::ApiListener, route::v3::route::Action},
            extensions::{
                filters::{
                    http::stateful_session::v3::StatefulSession,
                    network::http_connection_manager::v3::{
                        HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                    },
                },
                http::stateful_session::cookie::v3::CookieBasedSessionState,
            },
            r#type::http::v3::Cookie,
        },
        google::protobuf::{Any, Duration as Proto},
    },
    testing::resources::ListenerBuilder,
};

const SESSION: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";

fn any(type_name: &str, config: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{type_name}"), value: config.encode_to_vec().into() }
}

/// A filter that keeps sessions by a cookie for a path.
fn filter(cookie: &str, path: &str, seconds: i64) -> HttpFilter {
    let ttl = Some(Proto { seconds, nanos: 0 }).filter(|_| seconds > 0);
    let cookie = Some(Cookie { name: cookie.to_owned(), path: path.to_owned(), ttl });
    let state = Some(any(COOKIE_STATE, &CookieBasedSessionState { cookie }));
    let state = TypedExtensionConfig { name: "cookie".to_owned(), typed_config: state };
    let config = StatefulSession { session_state: Some(state), ..StatefulSession::default() };
    let config_type = Some(ConfigType::TypedConfig(any(SESSION, &config)));
    let name = format!("{path} of {}", config.encoded_len());
    HttpFilter { name, config_type, ..HttpFilter::default() }
}

/// The listener with filters before the router.
fn shop(filters: impl IntoIterator<Item = HttpFilter>) -> ListenerBuilder {
    listener("shop").rds("routes").edit(|listener| {
        let api = listener.api_listener.take().unwrap().api_listener.unwrap();
        let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
        manager.http_filters.splice(0..0, filters);
        let api = Any { value: manager.encode_to_vec().into(), ..api };
        listener.api_listener = Some(ApiListener { api_listener: Some(api) });
    })
}

/// A mesh with filters that keep sessions.
async fn mesh(name: &str, peers: &[&Peer], filters: impl IntoIterator<Item = HttpFilter>) -> Mesh {
    let mesh = Mesh::start(name, peers).await;
    mesh.server.set(shop(filters));
    mesh
}

/// The value of a cookie that leads to a peer.
fn value(peer: &Peer, cluster: &str) -> String {
    STANDARD.encode(format!("{};{cluster}", peer.address))
}

impl Mesh {
    /// A call with cookies in its request, whose response is returned.
    fn with_cookies(&self, path: &str, cookies: &[&str]) -> JoinHandle<Response<ChannelBody>> {
        let mut request = Request::post(path);
        for cookie in cookies {
            request = request.header("cookie", *cookie);
        }
        let request = request.body(Given::default()).unwrap();
        let mut channel = self.channel.clone();
        tokio::spawn(async move { channel.call(request).await.unwrap_or_else(|error| match error {}) })
    }

    /// Both peers are connected, so that without a cookie one after the other is picked.
    async fn connected(&self, peers: usize) {
        until("all are connected", || self.ready_endpoints() == peers).await;
    }
}

/// The cookies that a response sets.
fn cookies(response: &Response<ChannelBody>) -> Vec<&str> {
    response.headers().get_all("set-cookie").iter().map(|it| it.to_str().unwrap()).collect()
}

/// The next request, at whichever peer it arrives.
async fn either(one: &mut Peer, two: &mut Peer) -> (bool, peer::Received) {
    tokio::select! {
        received = one.request() => (true, received),
        received = two.request() => (false, received),
    }
}

#[tokio::test]
async fn ch8_5_ch8_11_the_first_call_gets_a_cookie_that_leads_the_next_ones_to_its_endpoint() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let name = "ch8_5_first";
    let mesh = mesh(name, &[&one, &two], [filter("sid", "", 90)]).await;
    let first = mesh.with_cookies("/a", &[]);
    let (is_one, request) = either(&mut one, &mut two).await;
    request.respond();
    let response = soon(first).await.unwrap();
    let expected = value(if is_one { &one } else { &two }, name);
    assert_eq!(cookies(&response), [format!("sid={expected}; HttpOnly; Path=/; Max-Age=90")]);
    mesh.connected(2).await;
    for form in [format!("sid={expected}"), format!("a=b; sid={expected};c=d")] {
        for _ in 0..4 {
            let next = mesh.with_cookies("/a", &[&form]);
            let request = if is_one { one.request().await } else { two.request().await };
            assert_eq!(request.header("cookie"), Some(&*form), "the server gets the cookie, too");
            request.respond();
            assert_eq!(cookies(&soon(next).await.unwrap()), [""; 0], "the cookie is the same");
        }
    }
}

#[tokio::test]
async fn ch8_1_a_cookie_is_for_its_path_and_those_below() {
    let mut one = Peer::start().await;
    let name = "ch8_1_path";
    let mesh = mesh(name, &[&one], [filter("sid", "/shop.Cart", 0)]).await;
    for (path, expected) in [
        ("/shop.Cart/Add", 1),
        ("/shop.Cart", 1),
        ("/shop.Carts/Add", 0),
        ("/shop/Add", 0),
        ("/a/shop.Cart/Add", 0),
        ("/shop.Cart?a", 1),
    ] {
        let call = mesh.with_cookies(path, &[]);
        one.request().await.respond();
        assert_eq!(cookies(&soon(call).await.unwrap()).len(), expected, "{path}");
    }
}

#[tokio::test]
async fn ch8_5_other_cookies_stay_and_failures_have_one_too() {
    let mut one = Peer::start().await;
    let name = "ch8_5_failures";
    let mesh = mesh(name, &[&one], [filter("sid", "", 0)]).await;
    let expected = format!("sid={}; HttpOnly; Path=/", value(&one, name));
    let call = mesh.with_cookies("/a", &[]);
    one.request().await.fail(Code::NotFound, &[("set-cookie", "a=b"), ("set-cookie", "c=d")]);
    let response = soon(call).await.unwrap();
    assert_eq!(cookies(&response), ["a=b", "c=d", &expected]);
    assert_eq!(response.headers()["grpc-status"], "5");
    // An answer that is not one of gRPC (CH8.7).
    let call = mesh.with_cookies("/a", &[]);
    one.request().await.answer(503);
    let response = soon(call).await.unwrap();
    assert_eq!(
        (cookies(&response), &response.headers()["grpc-status"]),
        (vec![&*expected], &"14".parse().unwrap())
    );
}

#[tokio::test]
async fn ch8_7_calls_without_an_endpoint_or_without_a_response_set_nothing() {
    let mut one = Peer::start().await;
    let name = "ch8_7_nothing";
    let mesh = mesh(name, &[&one], [filter("sid", "", 0)]).await;
    let call = mesh.with_cookies("/a", &[]);
    one.request().await.reset(h2::Reason::INTERNAL_ERROR);
    assert_eq!(cookies(&soon(call).await.unwrap()), [""; 0]);
    mesh.server.set(endpoints(name));
    until("the endpoints are gone", || mesh.ready_endpoints() == 0).await;
    let response = soon(mesh.with_cookies("/a", &[&format!("sid={}", value(&one, name))])).await.unwrap();
    assert_eq!((cookies(&response), response.headers()["grpc-status"].as_bytes()), (vec![], &b"14"[..]));
}

#[tokio::test]
async fn ch8_2_a_malformed_cookie_is_ignored_and_replaced() {
    let mut one = Peer::start().await;
    let name = "ch8_2_malformed";
    let mesh = mesh(name, &[&one], [filter("sid", "", 0)]).await;
    for cookie in ["sid=?", "sid=AAAA", "sid="] {
        let call = mesh.with_cookies("/a", &[cookie]);
        one.request().await.respond();
        let response = soon(call).await.unwrap();
        assert_eq!(cookies(&response), [format!("sid={}; HttpOnly; Path=/", value(&one, name))], "{cookie}");
    }
    assert_eq!(mesh.channel.malformed().session_cookies, 3);
}

/// A mesh of two clusters with a peer each, by their weights.
async fn weighted(names: [&str; 2], peers: [&Peer; 2], weights: [u32; 2]) -> Mesh {
    let mesh = Mesh::start(names[0], &[peers[0]]).await;
    mesh.server.set(shop([filter("sid", "", 0)]));
    mesh.server.set(cluster(names[1]));
    mesh.server.set(assignment(names[1], &[peers[1]]));
    let routes = [
        route::path("/first").cluster(names[0]),
        route::prefix("").weighted([(names[0], weights[0]), (names[1], weights[1])]),
    ];
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    mesh
}

#[tokio::test]
async fn ch8_4_ch8_9_a_cookie_leads_to_its_cluster_if_the_route_has_it() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let names = ["ch8_4_one", "ch8_4_two"];
    let mesh = weighted(names, [&one, &two], [99, 1]).await;
    for _ in 0..5 {
        for form in [names[1].to_owned(), format!("cluster:{}", names[1])] {
            let call = mesh.with_cookies("/a", &[&format!("sid={}", value(&two, &form))]);
            two.request().await.respond();
            assert_eq!(cookies(&soon(call).await.unwrap()), [""; 0]);
        }
    }
    // This route has the first cluster alone, which has no such endpoint.
    let call = mesh.with_cookies("/first", &[&format!("sid={}", value(&two, names[1]))]);
    one.request().await.respond();
    let expected = format!("sid={}; HttpOnly; Path=/", value(&one, names[0]));
    assert_eq!(cookies(&soon(call).await.unwrap()), [&*expected]);
    // The address is that of the cluster, whatever cluster the cookie names.
    let call = mesh.with_cookies("/first", &[&format!("sid={}", value(&one, "another"))]);
    one.request().await.respond();
    assert_eq!(cookies(&soon(call).await.unwrap()), [expected], "its cluster is another one");
}

#[tokio::test]
async fn ch8_4_a_cluster_without_weight_is_none_of_the_route() {
    let (mut one, two) = (Peer::start().await, Peer::start().await);
    let names = ["ch8_4_all", "ch8_4_none"];
    let mesh = weighted(names, [&one, &two], [1, 0]).await;
    for _ in 0..5 {
        let call = mesh.with_cookies("/a", &[&format!("sid={}", value(&two, names[1]))]);
        one.request().await.respond();
        soon(call).await.unwrap();
    }
}

#[tokio::test]
async fn ch8_9_references_to_clusters_end_with_the_call() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let names = ["ch8_9_one", "ch8_9_two"];
    let mesh = weighted(names, [&one, &two], [1, 1]).await;
    let cookie = format!("sid={}", value(&two, names[1]));
    let call = mesh.with_cookies("/a", &[&cookie]);
    let request = two.request().await;
    // The call is under way while its cluster leaves the routes.
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster(names[0])]));
    soon(async {
        loop {
            let other = mesh.with_cookies("/a", &[&cookie]);
            let (is_one, request) = either(&mut one, &mut two).await;
            request.respond();
            soon(other).await.unwrap();
            if is_one {
                return;
            }
        }
    })
    .await;
    request.respond();
    assert_eq!(cookies(&soon(call).await.unwrap()), [""; 0]);
    // The connection of the removed cluster is drained when no call refers to it.
    let last = two.connection().await;
    soon(last.closed()).await;
}

#[tokio::test]
async fn ch8_8_of_two_cookies_the_last_one_leads_and_each_is_set() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let name = "ch8_8_two";
    let mesh = mesh(name, &[&one, &two], [filter("a", "", 0), filter("b", "/", 7)]).await;
    let [first, second] = [&one, &two].map(|peer| value(peer, name));
    for _ in 0..4 {
        let call = mesh.with_cookies("/a", &[&format!("b={second}; a={first}")]);
        two.request().await.respond();
        assert_eq!(cookies(&soon(call).await.unwrap()), [format!("a={second}; HttpOnly; Path=/")]);
        let call = mesh.with_cookies("/a", &[&format!("a={first}")]);
        one.request().await.respond();
        assert_eq!(cookies(&soon(call).await.unwrap()), [format!("b={first}; HttpOnly; Path=/; Max-Age=7")]);
    }
}

#[tokio::test]
async fn ch8_7_ch6_21_a_retry_goes_to_the_endpoint_of_the_cookie_and_the_delivered_one_is_set() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let name = "ch8_7_retry";
    let mesh = mesh(name, &[&one, &two], [filter("sid", "", 0)]).await;
    let route = route::prefix("").cluster(name).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(retries::policy("unavailable", 2));
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let [first, second] = [&one, &two].map(|peer| value(peer, name));
    let call = mesh.with_cookies("/a", &[&format!("sid={first}")]);
    one.request().await.fail(Code::Unavailable, &[]);
    one.request().await.fail(Code::Unavailable, &[]);
    one.request().await.respond();
    assert_eq!(cookies(&soon(call).await.unwrap()), [""; 0]);
    // Without a cookie the second attempt goes elsewhere, or to the same: the one of the response counts.
    mesh.connected(2).await;
    for _ in 0..4 {
        let call = mesh.with_cookies("/a", &[]);
        let (_, request) = either(&mut one, &mut two).await;
        request.fail(Code::Unavailable, &[]);
        let (is_one, request) = either(&mut one, &mut two).await;
        request.respond();
        let expected = if is_one { &first } else { &second };
        assert_eq!(cookies(&soon(call).await.unwrap()), [format!("sid={expected}; HttpOnly; Path=/")]);
    }
}

#[tokio::test]
async fn ch8_14_a_draining_endpoint_serves_its_sessions_alone() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let name = "ch8_14_drain";
    let mesh = mesh(name, &[&one, &two], [filter("sid", "", 0)]).await;
    mesh.server.set(draining_cluster(name));
    let pinned = format!("sid={}", value(&two, name));
    let call = mesh.with_cookies("/a", &[&pinned]);
    two.request().await.respond();
    soon(call).await.unwrap();
    mesh.connected(2).await;
    mesh.server.set(assignment(name, &[&one, &two]).draining(&two.address.to_string()));
    until("it drains", || mesh.ready_endpoints() == 1).await;
    for _ in 0..3 {
        let (with, without) = (mesh.with_cookies("/a", &[&pinned]), mesh.with_cookies("/a", &[]));
        two.request().await.respond();
        one.request().await.respond();
        assert_eq!(cookies(&soon(with).await.unwrap()), [""; 0]);
        assert_eq!(cookies(&soon(without).await.unwrap()).len(), 1);
    }
    two.connection().await;
    assert!(two.has_no_further_connection());
    // It is gone: the session goes on elsewhere, with another cookie.
    mesh.server.set(assignment(name, &[&one]));
    soon(async {
        loop {
            let call = mesh.with_cookies("/a", &[&pinned]);
            let (is_one, request) = either(&mut one, &mut two).await;
            request.respond();
            let response = soon(call).await.unwrap();
            assert_eq!(cookies(&response).len(), usize::from(is_one));
            if is_one {
                return;
            }
        }
    })
    .await;
}

/// A cluster of which cookies may lead to endpoints that drain.
fn draining_cluster(name: &str) -> crate::testing::resources::ClusterBuilder {
    use crate::pb::envoy::config::{
        cluster::v3::cluster::CommonLbConfig,
        core::v3::{HealthStatus, HealthStatusSet},
    };
    cluster(name).edit(|cluster| {
        let statuses = [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Draining];
        let statuses = statuses.map(Into::into).into();
        let override_host_status = Some(HealthStatusSet { statuses });
        cluster.common_lb_config = Some(CommonLbConfig { override_host_status, ..Default::default() });
    })
}
