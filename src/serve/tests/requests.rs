//! The routes and the filters of requests.

use std::sync::Arc;

use prost::Message;

use crate::{
    error::Code,
    filters::FilterChain,
    pb::envoy::{
        config::route::v3 as pb,
        extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier,
    },
    resolve::RouteQuery,
    resource::{
        Context, Extension, Invalid, Listener, Payload, Registry, Resource, RouteConfiguration,
        http_filter::{CallFilter, ClientFilter, FilterBody, FilterFuture, HttpFilterExtension, Next, Sides},
    },
    serve::{
        Output, Refusal, RoutedRequest, Routing, Settings, authority, check_path,
        fixture::{
            Server, any, chain, chain_with, inline, listener, listener_message, parse, present, rds, routes,
            routes_message, served,
        },
    },
};

/// The latest routing of the only chain.
fn routing(server: &mut Server, routes: &Arc<RouteConfiguration>) -> Arc<Routing> {
    let observed = Arc::new(present(routes));
    server.machine.handle_routes(&routes.name.clone(), observed, server.now);
    latest(server).expect("a routing")
}

fn latest(server: &mut Server) -> Option<Arc<Routing>> {
    let mut latest = None;
    while let Some(output) = server.machine.poll_output() {
        match output {
            Output::AddChain { routing, .. } | Output::SetRouting { routing, .. } => latest = Some(routing),
            Output::WatchRoutes(_)
            | Output::EndRoutes(_)
            | Output::Open
            | Output::Close
            | Output::RemoveChain(_)
            | Output::Drain(_)
            | Output::CloseConnection(..)
            | Output::Drained { .. }
            | Output::State(_)
            | Output::RouteErrors(_) => {}
        }
    }
    latest
}

fn by_rds() -> Server {
    let mut server = Server::new(Settings::default());
    server.listener(&listener(vec![chain("a", rds("r"))]));
    server
}

fn of_message(message: pb::RouteConfiguration) -> Arc<Routing> {
    routing(&mut by_rds(), &parse(&pb::RouteConfiguration { name: "r".into(), ..message }))
}

fn route(routing: &Arc<Routing>, authority: Option<&str>, path: &str) -> Result<RoutedRequest, Refusal> {
    routing.route(authority, &RouteQuery::new(path, 1))
}

/// The virtual host and the route of a request, or the message of its refusal.
fn names(routing: &Arc<Routing>, authority: Option<&str>, path: &str) -> String {
    match route(routing, authority, path) {
        Ok(routed) => format!("{}, {}", routed.virtual_host().name, routed.route().name),
        Err(refusal) => format!("{} {}", refusal.code, refusal.message),
    }
}

#[test]
fn sv7_3_a_request_keeps_its_routes() {
    let mut server = by_rds();
    let routed = route(&routing(&mut server, &routes("r", &["/"])), None, "/a").unwrap();
    let next = routing(&mut server, &routes("r", &["/b"]));
    assert_eq!(&*routed.route().name, "route /");
    assert_eq!(names(&next, None, "/a"), "UNAVAILABLE no route matches the request [node id: node]");
}

#[test]
fn sv7_5_malformed_heads_are_refused() {
    for path in ["", "*", "p.S/M", "\\p.S/M"] {
        let refusal = check_path(path).unwrap_err();
        assert_eq!((refusal.code, refusal.http_status), (Code::Unimplemented, 400), "{path}");
    }
    assert_eq!(check_path("/p.S/M"), Ok(()));
    for hosts in [vec![&b"a"[..], &b"b"[..]], vec![&b"a"[..], &b"a"[..]], vec![&b"\xff"[..]]] {
        let refusal = authority(Some("a"), hosts.into_iter()).unwrap_err();
        assert_eq!((refusal.code, refusal.http_status), (Code::Internal, 400));
    }
}

#[test]
fn sv7_6_the_authority_is_that_of_the_target_or_else_the_host() {
    let host = || [&b"host"[..]].into_iter();
    assert_eq!(authority(Some("target"), host()), Ok(Some("target")));
    assert_eq!(authority(None, host()), Ok(Some("host")));
    assert_eq!(authority(None, [].into_iter()), Ok(None));
    assert_eq!(authority(None, [&b""[..]].into_iter()), Ok(None));
    let all = of_message(routes_message("", &[("x.example", &["/"]), ("*", &["/"])]));
    assert_eq!(names(&all, None, "/"), "host *, route /");
    let named = of_message(routes_message("", &[("x.example", &["/"]), ("*.example", &["/"])]));
    assert_eq!(
        names(&named, None, "/"),
        "UNAVAILABLE no virtual host matches the authority of the request [node id: node]"
    );
}

#[test]
fn sv7_7_sv11_9_without_routes_requests_are_unavailable_and_good_routes_stay() {
    let mut server = by_rds();
    server.machine.handle_routes(
        "r",
        Arc::new(crate::serve::fixture::absent(Code::NotFound, "r")),
        server.now,
    );
    let none = latest(&mut server).unwrap();
    let refusal = route(&none, None, "/").unwrap_err();
    assert_eq!((refusal.code, refusal.http_status), (Code::Unavailable, 503));
    assert_eq!(refusal.message, "the server has no route configuration [node id: node]");
    assert_eq!(none.error().map(|error| error.code()), Some(Code::NotFound));
    // It comes, and is deleted.
    let some = routing(&mut server, &routes("r", &["/"]));
    assert_eq!(names(&some, None, "/"), "host *, route /");
    server.no_routes("r");
}

#[test]
fn sv7_8_the_virtual_host_is_the_most_specific_one() {
    let hosts =
        [("*", "/"), ("shop.*", "/"), ("*.example", "/"), ("*.shop.example", "/"), ("a.example:80", "/")];
    let hosts: Vec<_> =
        hosts.iter().map(|(domain, prefix)| (*domain, std::slice::from_ref(prefix))).collect();
    let routing = of_message(routes_message("", &hosts));
    for (authority, expected) in [
        ("other", "*"),
        ("shop.test", "shop.*"),
        ("b.example", "*.example"),
        ("B.Shop.EXAMPLE", "*.shop.example"),
        ("A.example:80", "a.example:80"),
        ("a.example:81", "*"),
        ("a.example", "*.example"),
    ] {
        assert_eq!(names(&routing, Some(authority), "/"), format!("host {expected}, route /"), "{authority}");
    }
}

#[test]
fn sv7_9_the_first_route_that_matches_is_used() {
    let mut message = routes_message("", &[("*", &["/p.S/", "/"])]);
    message.virtual_hosts[0].routes[0].r#match.as_mut().unwrap().headers = vec![pb::HeaderMatcher {
        name: "x-user".into(),
        header_match_specifier: Some(pb::header_matcher::HeaderMatchSpecifier::PresentMatch(true)),
        ..Default::default()
    }];
    let routing = of_message(message);
    assert_eq!(names(&routing, None, "/p.S/M"), "host *, route /");
    let query = RouteQuery::new("/p.S/M", 1).with_header("x-user", "ada");
    assert_eq!(&*routing.route(None, &query).unwrap().route().name, "route /p.S/");
}

#[test]
fn sv7_10_the_action_is_looked_at_after_the_filters() {
    let redirect =
        pb::Route { action: Some(pb::route::Action::Redirect(pb::RedirectAction {})), ..served("/old") };
    let mut message = routes_message("", &[("*", &["/new"])]);
    message.virtual_hosts[0].routes.push(redirect);
    let routing = of_message(message);
    assert_eq!(route(&routing, None, "/new").unwrap().check_action(), Ok(()));
    let refusal = route(&routing, None, "/old").unwrap().check_action().unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert_eq!(refusal.message, "the action of the route is not for servers [node id: node]");
}

/// A filter of the application, executed or only known.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
struct Tag<const EXECUTED: bool>;

impl<const EXECUTED: bool> Extension for Tag<EXECUTED> {
    const TYPE_NAME: &'static str = if EXECUTED { "test.Tag" } else { "test.Known" };

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

impl<const EXECUTED: bool> HttpFilterExtension for Tag<EXECUTED> {
    const SIDES: Sides = Sides::Both;
    type Override = Self;
}

impl ClientFilter for Tag<true> {
    type State = ();

    fn state(&self, _: &str) {}

    fn call_filter(&self, _: Option<&Self>, _: &Arc<()>) -> Box<dyn CallFilter> {
        struct Pass;
        impl CallFilter for Pass {
            fn call<'a>(&'a self, request: http::Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
                Box::pin(async move { Ok(next.run(request).await) })
            }
        }
        Box::new(Pass)
    }
}

/// A listener whose chain has a filter of the application before the router.
fn filtered(routes: RouteSpecifier, type_name: &str) -> Arc<Listener> {
    let router = any("envoy.extensions.filters.http.router.v3.Router", Vec::new());
    let filters = vec![("tag", any(type_name, Vec::new())), ("router", router)];
    let message = listener_message(vec![chain_with("a", routes, filters)]);
    let registry = Registry::new().with_client_filter::<Tag<true>>().with_http_filter::<Tag<false>>();
    let mut context = Context::new();
    context.registry = &registry;
    Arc::new(Listener::parse(&message.encode_to_vec().into(), &context).unwrap())
}

fn filters(routing: &Arc<Routing>, authority: &str, path: &str) -> Arc<FilterChain> {
    route(routing, Some(authority), path).unwrap().filters().expect("filters").clone()
}

#[test]
fn sv8_5_filters_are_compiled_once_and_unchanged_virtual_hosts_keep_them() {
    let mut server = Server::new(Settings::default());
    server.listener(&filtered(rds("r"), "test.Tag"));
    let parsed = |second: &str| parse(&routes_message("r", &[("a", &["/", "/x"]), ("b", &[second])]));
    let before = routing(&mut server, &parsed("/"));
    assert!(Arc::ptr_eq(&filters(&before, "a", "/"), &filters(&before, "a", "/x")));
    let after = routing(&mut server, &parsed("/c"));
    assert!(Arc::ptr_eq(&filters(&before, "a", "/"), &filters(&after, "a", "/")));
    assert!(!Arc::ptr_eq(&filters(&before, "b", "/"), &filters(&after, "b", "/c")));
    // Routes in the Listener have filters as well.
    let routes = inline(routes_message("", &[("*", &["/"])]));
    server.machine.handle_listener(&present(&filtered(routes, "test.Tag")), server.now);
    assert!(route(&latest(&mut server).unwrap(), None, "/").unwrap().filters().is_some());
}

#[test]
fn sv8_3_a_filter_that_is_disabled_on_a_route_is_none_of_it() {
    let mut server = Server::new(Settings::default());
    server.listener(&filtered(rds("r"), "test.Tag"));
    let mut message = routes_message("r", &[("*", &["/off", "/"])]);
    let disabled = pb::FilterConfig { disabled: true, ..Default::default() };
    let disabled = any("envoy.config.route.v3.FilterConfig", disabled.encode_to_vec());
    message.virtual_hosts[0].routes[0].typed_per_filter_config = [("tag".to_owned(), disabled)].into();
    let routing = routing(&mut server, &parse(&message));
    assert!(route(&routing, None, "/off").unwrap().filters().is_none());
    assert!(route(&routing, None, "/").unwrap().filters().is_some());
}

#[test]
fn sv8_1_requests_are_refused_where_a_filter_is_not_executed() {
    let mut server = Server::new(Settings::default());
    server.listener(&filtered(rds("r"), "test.Known"));
    let outputs = server.routes(&routes("r", &["/"]));
    assert!(
        outputs.iter().any(|output| output.contains("HTTP filter \\\"tag\\\" is not executed")),
        "{outputs:?}"
    );
    let routing = routing(&mut server, &routes("r", &["/", "/a"]));
    let refusal = route(&routing, None, "/").unwrap_err();
    assert_eq!(refusal.message, "an HTTP filter of the route is not executed [node id: node]");
}
