use std::sync::Arc;

use super::*;
use crate::{
    error::Code,
    resource::{
        http_filter::{
            AbortKind, Fault, FaultAbort, FilterOverride, HttpFilter, HttpFilterConfig, HttpFilterOverride,
            OverrideSetting, Rbac, RbacRules, SessionCookie, StatefulSession, StatefulSessionPerRoute,
            rbac::{AuditCondition, AuditLogging, RbacAction},
        },
        matcher::{Denominator, Fraction},
    },
};

/// A fault with a status that tells it from others.
fn fault(code: Code) -> Fault {
    let (kind, percentage) = (AbortKind::GrpcStatus(code), Fraction::new(1, Denominator::Hundred));
    Fault { delay: None, abort: Some(FaultAbort { kind, percentage }), max_active_faults: None }
}

fn filter(name: &str, config: HttpFilterConfig) -> HttpFilter {
    HttpFilter { name: name.into(), config, disabled: false }
}

fn disabled(filter: HttpFilter) -> HttpFilter {
    HttpFilter { disabled: true, ..filter }
}

/// The filters of a listener, and the router.
fn listed(filters: impl IntoIterator<Item = HttpFilter>) -> Vec<HttpFilter> {
    filters.into_iter().chain([filter("router", HttpFilterConfig::Router)]).collect()
}

fn faults(names: &[(&str, Code)]) -> Vec<HttpFilter> {
    listed(names.iter().map(|(name, code)| filter(name, HttpFilterConfig::Fault(fault(*code)))))
}

fn session(name: &str) -> HttpFilter {
    let cookie = SessionCookie { name: "c".into(), path: "/".into(), ttl: Default::default() };
    filter(name, HttpFilterConfig::StatefulSession(StatefulSession { cookie: Some(cookie) }))
}

fn unexecuted(name: &str) -> HttpFilter {
    let rules = RbacRules {
        action: RbacAction::Allow,
        policies: [].into(),
        audit_logging: AuditLogging { condition: AuditCondition::None, loggers: [].into() },
    };
    filter(name, HttpFilterConfig::Rbac(Rbac { rules: Some(rules) }))
}

fn with_fault(filter: &str, code: Code) -> FilterOverride {
    let setting = OverrideSetting::Config(HttpFilterOverride::Fault(fault(code)));
    FilterOverride { filter: filter.into(), setting }
}

fn off(filter: &str) -> FilterOverride {
    FilterOverride { filter: filter.into(), setting: OverrideSetting::Disabled }
}

/// The statuses of the faults of a chain.
fn codes(chain: Option<Arc<FilterChain>>) -> Vec<Code> {
    let Some(chain) = chain else { return Vec::new() };
    assert!(!chain.filters().is_empty());
    let code = |filter: &Filter| {
        let Filter::Fault(fault::FaultFilter(Fault {
            abort: Some(FaultAbort { kind: AbortKind::GrpcStatus(code), .. }),
            ..
        })) = filter
        else {
            panic!("no such fault: {filter:?}")
        };
        *code
    };
    chain.filters().iter().map(code).collect()
}

#[test]
fn ch5_1_the_filters_of_a_chain_are_in_the_order_of_the_listener() {
    let filters = faults(&[("b", Code::Aborted), ("a", Code::NotFound)]);
    let chain = ChainCompiler::new(&filters, &[]).chain(&[], &[]);
    assert_eq!(codes(chain), [Code::Aborted, Code::NotFound]);
}

#[test]
fn ch5_1_the_override_of_the_most_specific_level_is_that_of_the_chain() {
    let filters = faults(&[("a", Code::Unknown)]);
    let host = [with_fault("a", Code::Internal)];
    let route = [with_fault("a", Code::NotFound)];
    let cluster = [with_fault("a", Code::Aborted)];
    assert_eq!(codes(ChainCompiler::new(&filters, &[]).chain(&[], &[])), [Code::Unknown]);
    let mut compiler = ChainCompiler::new(&filters, &host);
    assert_eq!(codes(compiler.chain(&[], &[])), [Code::Internal]);
    assert_eq!(codes(compiler.chain(&route, &[])), [Code::NotFound]);
    assert_eq!(codes(compiler.chain(&route, &cluster)), [Code::Aborted]);
    assert_eq!(codes(compiler.chain(&[], &cluster)), [Code::Aborted]);
    let other = [with_fault("b", Code::Aborted)];
    assert_eq!(codes(compiler.chain(&other, &other)), [Code::Internal], "there is no such filter");
}

#[test]
fn ch5_1_a_disabled_filter_is_left_out_and_an_override_enables_it() {
    let mut filters = faults(&[("a", Code::Aborted), ("b", Code::NotFound)]);
    let mut compiler = ChainCompiler::new(&filters, &[]);
    assert_eq!(codes(compiler.chain(&[off("a")], &[])), [Code::NotFound]);
    assert_eq!(codes(compiler.chain(&[off("a")], &[off("b")])), []);
    assert_eq!(codes(compiler.chain(&[off("a")], &[with_fault("a", Code::Internal)])).len(), 2);
    filters[0] = disabled(filters[0].clone());
    let host = [off("b")];
    let mut compiler = ChainCompiler::new(&filters, &host);
    assert_eq!(codes(compiler.chain(&[], &[])), []);
    assert_eq!(codes(compiler.chain(&[with_fault("a", Code::Internal)], &[])), [Code::Internal]);
}

#[test]
fn ch5_1_without_filters_there_is_no_chain() {
    let none = Fault { delay: None, abort: None, max_active_faults: None };
    for filters in [listed([]), listed([filter("a", HttpFilterConfig::Fault(none))])] {
        let mut compiler = ChainCompiler::new(&filters, &[]);
        assert!(compiler.chain(&[], &[]).is_none());
        assert!(compiler.into_unexecuted().is_empty(), "a fault without an effect is executed");
    }
}

#[test]
fn ch5_1_routes_share_equal_chains() {
    let filters = faults(&[("a", Code::Aborted), ("b", Code::NotFound)]);
    let mut compiler = ChainCompiler::new(&filters, &[]);
    let (route, other) = ([off("a")], [off("a"), off("c")]);
    let [first, second] = [compiler.chain(&[], &[]).unwrap(), compiler.chain(&route, &[]).unwrap()];
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &compiler.chain(&other, &[]).unwrap()));
    assert!(Arc::ptr_eq(&first, &compiler.chain(&[], &[]).unwrap()));
    assert!(Arc::ptr_eq(&first, &compiler.chain(&[off("c")], &[]).unwrap()));
}

#[test]
fn ch5_1_filters_without_an_effect_on_any_route_are_not_missed() {
    let filters = listed([unexecuted("a"), unexecuted("b"), disabled(unexecuted("c"))]);
    let unexecuted = |routes: &[&[FilterOverride]]| {
        let mut compiler = ChainCompiler::new(&filters, &[]);
        for route in routes {
            assert!(compiler.chain(route, &[]).is_none());
        }
        compiler.into_unexecuted().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let (first, both) = ([off("a")], [off("a"), off("b")]);
    assert_eq!(unexecuted(&[&[]]), ["a", "b"]);
    assert_eq!(unexecuted(&[&both, &first]), ["b"]);
    assert_eq!(unexecuted(&[&both, &both]), [""; 0]);
}

#[test]
fn ch8_1_a_session_is_kept_where_a_cookie_is_configured() {
    let none = filter("a", HttpFilterConfig::StatefulSession(StatefulSession { cookie: None }));
    let setting = HttpFilterOverride::StatefulSession(StatefulSessionPerRoute { session: None });
    let disabled = FilterOverride { filter: "b".into(), setting: OverrideSetting::Config(setting) };
    for (filters, route, expected) in [
        (listed([none.clone()]), None, 0),
        (listed([none, session("b")]), None, 1),
        (listed([session("a"), session("b")]), None, 2),
        (listed([session("a"), session("b")]), Some(disabled), 1),
    ] {
        let mut compiler = ChainCompiler::new(&filters, &[]);
        let chain = compiler.chain(route.as_slice(), &[]);
        assert_eq!(chain.as_ref().map_or(0, |chain| chain.filters().len()), expected);
        assert_eq!(chain.is_some_and(|chain| chain.has_session()), expected > 0);
        assert!(compiler.into_unexecuted().is_empty());
    }
}
