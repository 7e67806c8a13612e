//! Watches of all types as one kind of stream: that of what is to be printed.

use std::future::ready;

use futures_util::{StreamExt, stream::BoxStream};
use serde::Serialize;

use super::{
    print::Printer,
    target::{Kind, Target},
};
use crate::{
    Client, Resource,
    client::MemberChange,
    resource::{
        Cluster, ClusterLoadAssignment, Listener, RouteConfiguration, Runtime, ScopedRouteConfiguration,
        Secret, VirtualHost,
    },
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
        let (target, target_of) = (target.clone(), target.clone());
        let members = client.watch_all::<T>(&*target.name).changes();
        // What is known of the collection as a whole has the name that was asked for.
        let name = move |change: &MemberChange<T>| match change.of_collection {
            true => target.name.to_string(),
            false => change.name.to_string(),
        };
        members.filter_map(move |one| ready(printer.observed(&target_of, &name(&one), &one.observed))).boxed()
    } else {
        let target = target.clone();
        let seen = client.watch::<T>(&target.name);
        seen.filter_map(move |seen| ready(printer.observed(&target, &target.name, &seen))).boxed()
    }
}
