//! The channels to the lookup services of plugins (RLS).

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::{ChannelBuilder, Source};
use crate::{
    Client,
    channel::{
        Channel,
        lookup::{LookupRouters, LookupSource},
        settings::Settings,
        task::{Control, DnsTarget},
    },
    config::Target,
};

/// The routers of a channel with an authority, whose channels to lookup services have its client and its settings.
pub(super) fn routers(
    client: &Client,
    settings: &Settings,
    authority: &str,
    control: &UnboundedSender<Control>,
) -> Arc<LookupRouters> {
    let source = settings.executes_plugins.then(|| {
        let (limits, observer) = (settings.lookup_limits, settings.observer.clone());
        let (of_channel, settings) = (client.clone(), settings.for_lookups(authority));
        LookupSource {
            connect: Box::new(move |service| connect(service, &of_channel, settings.clone())),
            control: control.downgrade(),
            runtime: client.runtime().clone(),
            limits,
            observer,
        }
    });
    LookupRouters::new(source)
}

/// Begins to connect to a lookup service.
///
/// # Errors
/// The target has no form that channels support.
fn connect(service: &str, client: &Client, mut settings: Settings) -> Result<Channel, String> {
    if !service.starts_with("xds:") {
        settings.dns_target = Some(DnsTarget::parse(service)?);
    }
    let (target, source) = (Target::new(service), Some(Source::Client(client.clone())));
    let builder = ChannelBuilder { target, source, settings };
    let (channel, task, runtime) = builder.with_task().map_err(|error| error.to_string())?;
    runtime.spawn(task);
    channel.connect();
    Ok(channel)
}
