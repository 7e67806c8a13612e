//! Watches of all types as one kind of stream: that of what is to be printed.

use std::future::ready;

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde::Serialize;
use xdskit::{
    Client, Resource,
    client::WatchAll,
    resource::{
        Cluster, ClusterLoadAssignment, Listener, RouteConfiguration, Runtime, ScopedRouteConfiguration,
        Secret, VirtualHost,
    },
};

use crate::{
    args::{Kind, Target},
    print::Printer,
};

/// Watches what the target says, for as long as the stream is kept.
pub(crate) fn observe(client: &Client, target: &Target, printer: Printer) -> BoxStream<'static, String> {
    match target.kind {
        Kind::Listener => observe_type::<Listener>(client, target, printer),
        Kind::Route => observe_type::<RouteConfiguration>(client, target, printer),
        Kind::Cluster => observe_type::<Cluster>(client, target, printer),
        Kind::Endpoints => observe_type::<ClusterLoadAssignment>(client, target, printer),
        Kind::ScopedRoute => observe_type::<ScopedRouteConfiguration>(client, target, printer),
        Kind::VirtualHost => observe_type::<VirtualHost>(client, target, printer),
        Kind::Secret => observe_type::<Secret>(client, target, printer),
        Kind::Runtime => observe_type::<Runtime>(client, target, printer),
    }
}

fn observe_type<T: Resource + Serialize>(
    client: &Client,
    target: &Target,
    printer: Printer,
) -> BoxStream<'static, String> {
    if target.is_many() {
        let all = client.watch_all::<T>(&*target.name);
        let trouble = trouble(all.clone(), target.clone(), printer);
        let target = target.clone();
        let members = all.changes();
        let members =
            members.filter_map(move |one| ready(printer.observed(&target, &one.name, &one.observed)));
        stream::select(members, trouble).boxed()
    } else {
        let target = target.clone();
        let seen = client.watch::<T>(&target.name);
        seen.filter_map(move |seen| ready(printer.observed(&target, &target.name, &seen))).boxed()
    }
}

/// A wildcard or a collection that has no members, for a reason. Where there are members, each shows its own trouble.
fn trouble<T: Resource>(
    all: WatchAll<T>,
    target: Target,
    printer: Printer,
) -> impl stream::Stream<Item = String> + Send + 'static {
    let mut told = None;
    all.filter_map(move |members| {
        let warning = members.warning().filter(|_| members.is_empty()).cloned();
        let news = warning.as_ref().filter(|_| warning != told);
        let line = news.map(|error| printer.absent(&target, &target.name, error));
        told = warning;
        ready(line)
    })
}
