//! Watches of all types as streams of their output.

use std::{future::ready, sync::Arc};

use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use serde::Serialize;
use xdskit::{
    Client, Observed, Resource,
    client::MemberChange,
    resource::{
        Cluster, ClusterLoadAssignment, Inspected, Listener, RouteConfiguration, Runtime,
        ScopedRouteConfiguration, Secret, VirtualHost,
    },
};

use super::{
    Form,
    print::{Content, Lines, Printer},
    target::Target,
};
use crate::{filter::Filter, kind::Kind};

/// A target, and the form of its output.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// What is watched.
    pub(crate) target: Target,
    /// The form of its resources.
    pub(crate) form: Form,
    /// Formats them.
    pub(crate) printer: Printer,
    /// The names to print.
    pub(crate) filters: Arc<[Filter]>,
}

/// The first complete state of a target.
#[derive(Debug, Default)]
pub(crate) struct FirstState {
    /// The output.
    pub(crate) lines: Vec<Lines>,
    /// Whether a resource is missing.
    pub(crate) missing: bool,
}

/// Converts a resource to its output.
type ContentOf<R, T> = fn(&R, Form) -> Content<'_, T>;

/// The functions that watch one type.
struct Watching {
    /// The output of each state.
    changes: fn(Watched, &Client) -> BoxStream<'static, Lines>,
    /// The output of the first complete state.
    first: for<'a> fn(&'a Watched, &Client) -> BoxFuture<'a, FirstState>,
}

impl Watching {
    /// The functions of a type.
    fn of(kind: Kind) -> Self {
        // The type is known at run time alone, and each has functions of its own.
        match kind {
            Kind::Listener => Self::of_type::<Listener>(),
            Kind::Route => Self::of_type::<RouteConfiguration>(),
            Kind::Cluster => Self::of_type::<Cluster>(),
            Kind::Endpoints => Self::of_type::<ClusterLoadAssignment>(),
            Kind::ScopedRoute => Self::of_type::<ScopedRouteConfiguration>(),
            Kind::VirtualHost => Self::of_type::<VirtualHost>(),
            Kind::Secret => Self::of_type::<Secret>(),
            Kind::Runtime => Self::of_type::<Runtime>(),
        }
    }

    /// The functions of a resource type.
    fn of_type<T: Resource + Serialize>() -> Self {
        Self { changes: Watched::changes_of::<T>, first: Watched::first_of::<T> }
    }
}

impl Watched {
    /// The output of each change, until the stream is dropped.
    pub(crate) fn changes(self, client: &Client) -> BoxStream<'static, Lines> {
        (Watching::of(self.target.kind).changes)(self, client)
    }

    /// The output of the first complete state.
    pub(crate) fn first(&self, client: &Client) -> BoxFuture<'_, FirstState> {
        (Watching::of(self.target.kind).first)(self, client)
    }

    /// The output of each state, in the form of the target.
    fn changes_of<T: Resource + Serialize>(self, client: &Client) -> BoxStream<'static, Lines> {
        match self.form {
            Form::Typed => self.stream::<T, T>(client, typed),
            Form::Observed | Form::Raw => self.stream::<Inspected<T>, T>(client, inspected),
        }
    }

    /// The output of the first complete state, in the form of the target.
    fn first_of<T: Resource + Serialize>(&self, client: &Client) -> BoxFuture<'_, FirstState> {
        let client = client.clone();
        match self.form {
            Form::Typed => Box::pin(self.state::<T, T>(client, typed)),
            Form::Observed | Form::Raw => Box::pin(self.state::<Inspected<T>, T>(client, inspected)),
        }
    }

    /// The output of each state. `R` is what is watched, and `T` what is printed of it.
    fn stream<R: Resource, T: Serialize + 'static>(
        self,
        client: &Client,
        content: ContentOf<R, T>,
    ) -> BoxStream<'static, Lines> {
        if self.target.is_many() {
            let members = client.watch_all::<R>(self.target.subscribed()).changes();
            let lines = move |change: MemberChange<R>| match change.of_collection {
                // The state of a collection as a whole has the name of the target.
                true => self.lines(&self.target.name, &change.observed, content),
                false if !self.shows(&change.name) => None,
                false => self.lines(&change.name, &change.observed, content),
            };
            members.filter_map(move |change| ready(lines(change))).boxed()
        } else {
            let seen = client.watch::<R>(self.target.subscribed());
            let is_shown = self.shows(self.target.subscribed());
            let lines = move |seen: &Observed<R>| self.lines(&self.target.name, seen, content);
            seen.filter_map(move |seen| ready(lines(&seen).filter(|_| is_shown))).boxed()
        }
    }

    /// The output of the first complete state.
    async fn state<R: Resource, T: Serialize>(&self, client: Client, content: ContentOf<R, T>) -> FirstState {
        let name = self.target.subscribed();
        let mut state = FirstState::default();
        if !self.target.is_many() {
            let seen = client.watch::<R>(name).wait_for(|seen| !seen.is_pending()).await;
            if let Some(seen) = seen.filter(|_| self.shows(name)) {
                state.missing = seen.is_absent();
                state.lines.extend(self.lines(&self.target.name, &seen, content));
            }
            return state;
        }
        let mut all = client.watch_all::<R>(name);
        let known = all.wait_for(|members| members.is_complete() || members.absence().is_some());
        let Some(members) = known.await else { return state };
        if let Some(reason) = members.absence() {
            state.missing = true;
            state.lines.push(self.printer.absent(&self.target, &self.target.name, &reason));
        }
        for (name, seen) in members.iter().filter(|(name, _)| self.shows(name)) {
            state.missing |= seen.is_absent();
            state.lines.extend(self.lines(name, seen, content));
        }
        state
    }

    /// Whether a resource is printed.
    fn shows(&self, name: &str) -> bool {
        self.target.matches(name) && Filter::any_passes(&self.filters, Some(self.target.kind), name)
    }

    /// The output of a state.
    fn lines<R, T: Serialize>(
        &self,
        name: &str,
        seen: &Observed<R>,
        content: ContentOf<R, T>,
    ) -> Option<Lines> {
        self.printer.observed(&self.target, name, seen, |resource| content(resource, self.form))
    }
}

/// The content of a resource that gRPC's rules accept.
fn typed<T>(resource: &T, _: Form) -> Content<'_, T> {
    Content::typed(resource)
}

/// The content of a resource, whether the rules accept it or not.
fn inspected<T: Resource>(resource: &Inspected<T>, form: Form) -> Content<'_, T> {
    let typed = resource.typed();
    match form {
        Form::Typed | Form::Observed => Content::observed(typed.map(|typed| &**typed)),
        Form::Raw => Content::raw(resource.to_json(), typed.err()),
    }
}
