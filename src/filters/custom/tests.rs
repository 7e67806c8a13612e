use std::{cell::RefCell, sync::Arc};

use http::Request;
use serde::Serialize;

use crate::{
    base::Custom,
    filters::{ChainCompiler, Filter, FilterChain, Instances, StreamFilter as _},
    resource::{
        Context, Extension, Invalid, Payload,
        http_filter::{
            CallFilter, ClientFilter, CustomFilter, FilterBody, FilterFuture, FilterOverride, HttpFilter,
            HttpFilterConfig, HttpFilterExtension, HttpFilterOverride, Next, OverrideSetting, Sides,
        },
    },
};

/// A filter that notes what is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Noted {
    setting: u32,
    breaks: Option<Breaks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
enum Breaks {
    State,
    CallFilter,
}

/// The same of another type.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Other;

impl Extension for Noted {
    const TYPE_NAME: &'static str = "test.Noted";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::new("made in code alone"))
    }
}

impl Extension for Other {
    const TYPE_NAME: &'static str = "test.Other";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::new("made in code alone"))
    }
}

impl HttpFilterExtension for Noted {
    const SIDES: Sides = Sides::Client;
    type Override = Self;
}

impl HttpFilterExtension for Other {
    const SIDES: Sides = Sides::Client;
    type Override = Self;
}

impl ClientFilter for Noted {
    /// Its name, to be noted with each filter.
    type State = String;

    fn state(&self, name: &str) -> String {
        assert!(self.breaks != Some(Breaks::State), "on purpose");
        note(format!("state {name}"));
        format!("{name}, made with {}", self.setting)
    }

    fn call_filter(&self, setting: Option<&Self>, state: &Arc<String>) -> Box<dyn CallFilter> {
        assert!(self.breaks != Some(Breaks::CallFilter), "on purpose");
        let setting = setting.map_or("-".to_owned(), |it| it.setting.to_string());
        note(format!("{} {setting} of {state}", self.setting));
        Box::new(Nothing)
    }
}

impl ClientFilter for Other {
    type State = ();

    fn state(&self, name: &str) {
        note(format!("other state {name}"));
    }

    fn call_filter(&self, _: Option<&Self>, _: &Arc<()>) -> Box<dyn CallFilter> {
        Box::new(Nothing)
    }
}

struct Nothing;

impl CallFilter for Nothing {
    fn call<'a>(&'a self, request: Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
        Box::pin(async { Ok(next.run(request).await) })
    }
}

thread_local! {
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn note(text: String) {
    NOTES.with_borrow_mut(|notes| notes.push(text));
}

/// What was noted since the last time.
fn notes() -> Vec<String> {
    NOTES.take()
}

fn of(setting: u32) -> Noted {
    Noted { setting, breaks: None }
}

fn listed<T: ClientFilter>(name: &str, config: T) -> HttpFilter {
    let config = HttpFilterConfig::Custom(CustomFilter::executed::<T>(Custom::new(config)));
    HttpFilter { name: name.into(), config, disabled: false }
}

fn overridden(filter: &str, config: impl Extension) -> [FilterOverride; 1] {
    let setting = OverrideSetting::Config(HttpFilterOverride::Custom(Custom::new(config)));
    [FilterOverride { filter: filter.into(), setting }]
}

/// Compiles routes without overrides, and returns the chain of the last one.
fn compile(instances: &mut Instances, filters: &[HttpFilter], routes: usize) -> Arc<FilterChain> {
    let mut compiler = ChainCompiler::new(filters, &[]).with_instances(std::mem::take(instances));
    let chains: Vec<_> = (0..routes).map(|_| compiler.chain(&[], &[]).unwrap()).collect();
    *instances = compiler.take_instances();
    chains.into_iter().next_back().unwrap()
}

#[test]
fn ch5_5_a_filter_is_made_for_each_override_and_not_for_each_route() {
    let filters = [listed("a", of(1)), listed("b", of(2))];
    let mut compiler = ChainCompiler::new(&filters, &[]);
    let own = overridden("a", of(7));
    let first = compiler.chain(&[], &[]).unwrap();
    assert!(Arc::ptr_eq(&first, &compiler.chain(&[], &[]).unwrap()));
    let second = compiler.chain(&own, &[]).unwrap();
    assert!(Arc::ptr_eq(&second, &compiler.chain(&[], &own).unwrap()));
    assert!(Arc::ptr_eq(&first, &compiler.chain(&[], &[]).unwrap()));
    assert_eq!(
        notes(),
        ["state a", "1 - of a, made with 1", "state b", "2 - of b, made with 2", "1 7 of a, made with 1",]
    );
    compiler.chain(&overridden("a", Other), &[]).unwrap();
    assert_eq!(notes(), [""; 0], "an override of another type is none");
    assert!(compiler.into_unexecuted().is_empty());
}

#[test]
fn ch5_4_the_state_outlives_updates_as_long_as_name_and_type_stay() {
    let mut instances = Instances::default();
    compile(&mut instances, &[listed("a", of(1)), listed("b", of(1))], 1);
    assert_eq!(notes().len(), 4);
    compile(&mut instances, &[listed("c", of(2)), listed("a", of(2))], 3);
    let made = ["state c", "2 - of c, made with 2", "2 - of a, made with 1"];
    assert_eq!(notes(), made, "b was removed, and a has another configuration");
    compile(&mut instances, &[listed("b", of(3)), listed("a", Other)], 1);
    assert_eq!(notes(), ["state b", "3 - of b, made with 3", "other state a"]);
    compile(&mut instances, &[listed("a", of(4))], 1);
    assert_eq!(notes(), ["state a", "4 - of a, made with 4"]);
    let off = HttpFilter { disabled: true, ..listed("a", of(5)) };
    compile(&mut instances, &[off, listed("b", of(5))], 1);
    notes();
    compile(&mut instances, &[listed("a", of(6))], 1);
    assert_eq!(notes(), ["6 - of a, made with 4"], "a filter that is disabled is there still");
}

#[test]
fn ch5_4_a_filter_that_panics_is_in_the_chain_without_effect_until_another_configuration() {
    let mut instances = Instances::default();
    for breaks in [Breaks::State, Breaks::CallFilter] {
        let broken = Noted { setting: 1, breaks: Some(breaks) };
        let chain = compile(&mut instances, &[listed("a", broken)], 2);
        let [Filter::Custom(filter)] = chain.filters() else { panic!("{chain:?}") };
        assert!(filter.handler().is_none());
        assert_eq!(&*filter.0.name, "a");
    }
    let chain = compile(&mut instances, &[listed("a", of(2))], 1);
    let [Filter::Custom(filter)] = chain.filters() else { panic!("{chain:?}") };
    assert!(filter.handler().is_some());
}
