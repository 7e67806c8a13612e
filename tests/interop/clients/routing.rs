//! Which cluster gets a call.

use xdskit::pb::{
    envoy::{
        config::{
            cluster::v3::cluster::LbPolicy,
            route::v3::{
                HeaderMatcher,
                header_matcher::HeaderMatchSpecifier,
                route::Action,
                route_action::{
                    HashPolicy,
                    hash_policy::{Header, PolicySpecifier},
                },
            },
        },
        r#type::{matcher::v3::RegexMatcher, v3::Int64Range},
    },
    google::protobuf::BoolValue,
};

use super::*;

/// The clients call both methods. The clusters `cart` and `pay` have one backend each, `one` and `two`.
async fn with_two_clusters(flags: [&[&str]; 3]) -> (Trio, [Backend; 2]) {
    let both = backends(["one", "two"]).await;
    let trio = Trio::start_each(flags, &[&both[0]]).await;
    trio.server.set(cluster("pay"));
    trio.server.set(locality(endpoints("pay"), "a", 0, &[&both[1]]));
    (trio, both)
}

impl Trio {
    /// Waits until the calls of each method go to one backend.
    async fn go_to(&self, case: &str, [of_unary, of_empty]: [&str; 2]) {
        let expected = [("EmptyCall", of_empty), ("UnaryCall", of_unary)];
        self.each(async |client| {
            let is_met = |seen: &LoadBalancerStatsResponse| {
                let methods = seen.rpcs_by_method.iter();
                let to =
                    methods.flat_map(|(method, of)| of.rpcs_by_peer.keys().map(move |it| (&**method, &**it)));
                seen.num_failures == 0 && to.eq(expected)
            };
            client.until(case, 20, is_met).await;
        })
        .await;
    }
}

#[tokio::test]
async fn traffic_splitting() {
    let (trio, _backends) = with_two_clusters([&["--qps=500"]; 3]).await;
    trio.reach(&["one"]).await;
    trio.set_routes([route::prefix("").weighted([("cart", 20), ("pay", 80)])]);
    trio.reach(&["one", "two"]).await;
    trio.each(async |client| {
        // Within 3 standard deviations, which chance exceeds once in 370 times.
        let is_met = |seen: &LoadBalancerStatsResponse| seen.rpcs_by_peer["one"].abs_diff(200) <= 38;
        client.until("share of 20 % of 1,000 calls", 1_000, is_met).await;
    })
    .await;
}

#[tokio::test]
async fn path_matching() {
    let flags = ["--qps=50", "--rpc=UnaryCall,EmptyCall", "--fail_on_failed_rpcs=true"];
    let (trio, _backends) = with_two_clusters([&flags, &flags[..2], &flags[..2]]).await;
    trio.go_to("the default route", ["one", "one"]).await;
    let unary = || route::prefix("/grpc.testing.TestService/Unary");
    let empty = || route::path("/grpc.testing.TestService/EmptyCall").cluster("pay");
    let any_case = route::path("/gRpC.tEsTinG.tEstseRvice/empTycaLl").cluster("pay");
    let any_case =
        any_case.edit(|it| it.r#match.as_mut().unwrap().case_sensitive = Some(BoolValue { value: false }));
    // The calls move with each case.
    for (case, routes, expected) in [
        ("a path", vec![empty()], ["one", "two"]),
        ("a prefix", vec![unary().cluster("pay")], ["two", "one"]),
        ("a prefix and a path", vec![unary().cluster("cart"), empty()], ["one", "two"]),
        ("a regex", vec![route::regex(r"^\/.*\/UnaryCall$").cluster("pay")], ["two", "one"]),
        ("a path in any case", vec![any_case], ["one", "two"]),
    ] {
        trio.set_routes(routes.into_iter().chain([route::prefix("").cluster("cart")]));
        trio.go_to(case, expected).await;
    }
    trio.stop_after_new_clusters().await;
}

#[tokio::test]
async fn header_matching() {
    let metadata = "--metadata=EmptyCall:xds_md:empty_ytpme,UnaryCall:xds_md:unary_yranu,\
                    UnaryCall:xds_md_numeric:159";
    let flags = ["--qps=50", "--rpc=UnaryCall,EmptyCall", metadata];
    let (trio, _backends) = with_two_clusters([&flags; 3]).await;
    trio.go_to("the default route", ["one", "one"]).await;
    let regex = RegexMatcher { regex: "^em.*me$".into() };
    let (of_unary, of_empty) = (["two", "one"], ["one", "two"]);
    // The calls move with each case.
    for (name, specifier, invert_match, expected) in [
        ("xds_md", HeaderMatchSpecifier::ExactMatch("empty_ytpme".into()), false, of_empty),
        ("xds_md", HeaderMatchSpecifier::PrefixMatch("un".into()), false, of_unary),
        ("xds_md", HeaderMatchSpecifier::SuffixMatch("me".into()), false, of_empty),
        ("xds_md_numeric", HeaderMatchSpecifier::PresentMatch(true), false, of_unary),
        ("xds_md", HeaderMatchSpecifier::ExactMatch("unary_yranu".into()), true, of_empty),
        (
            "xds_md_numeric",
            HeaderMatchSpecifier::RangeMatch(Int64Range { start: 100, end: 200 }),
            false,
            of_unary,
        ),
        ("xds_md", HeaderMatchSpecifier::SafeRegexMatch(regex), false, of_empty),
    ] {
        let case = format!("{specifier:?}, inverted: {invert_match}");
        let header_match_specifier = Some(specifier);
        let matcher =
            HeaderMatcher { name: name.into(), invert_match, header_match_specifier, ..Default::default() };
        let matched =
            route::prefix("").cluster("pay").edit(|it| it.r#match.as_mut().unwrap().headers.push(matcher));
        trio.set_routes([matched, route::prefix("").cluster("cart")]);
        trio.go_to(&case, expected).await;
    }
}

/// Calls with the same value of a header go to one backend, which is the same one for all clients, as the rings are.
#[tokio::test]
async fn affinity() {
    let three = backends(["one", "three", "two"]).await;
    let trio = Trio::start(&["--qps=100"], &three.each_ref()).await;
    trio.server.set(cluster("cart").edit(|cluster| cluster.lb_policy = LbPolicy::RingHash.into()));
    trio.set_routes([route::prefix("").cluster("cart").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let header = Header { header_name: "user".into(), regex_rewrite: None };
        let policy_specifier = Some(PolicySpecifier::Header(header));
        action.hash_policy = vec![HashPolicy { policy_specifier, terminal: false }];
    })]);
    for user in ["ada", "bob", "cleo", "dora", "emil"] {
        let chosen = trio.each(async |client| {
            client.configure(Load { metadata: &[(UNARY, "user", user)], ..UNARY_CALLS }).await;
            let is_one =
                |seen: &LoadBalancerStatsResponse| seen.num_failures == 0 && seen.rpcs_by_peer.len() == 1;
            client.until("affinity", 30, is_one).await.rpcs_by_peer
        });
        let [ours, go, original] = chosen.await;
        assert_eq!(ours, go, "{user}");
        assert_eq!(ours, original, "{user}");
    }
}
