//! The wait of a call for the cluster that a plugin looks up (RLS).

use std::{future::Future, slice, sync::Arc};

use http::{HeaderName, HeaderValue};
use tonic::Status;

use super::Call;
use crate::{
    balance::routes::{Selected, Selection},
    channel::{
        lookup::{FoundPlugin, LookupRouter, Routing},
        telemetry::LookupTarget,
    },
    resolve::RouteQuery,
};

impl Call<'_> {
    /// Selects a target of a plugin, which the routes of generation `seen` have. `None` if the call is to be routed again, after a wait
    /// if there was reason for one.
    pub(super) async fn look_up(
        &mut self,
        plugin: &str,
        query: &RouteQuery<'_>,
        seen: u64,
    ) -> Result<Option<Selected>, Status> {
        let lookups = &self.context.lookups;
        if !lookups.are_executed() {
            return Err(self.failed(&format!(
                "the cluster specifier plugin {plugin} is not executed for calls to a lookup service"
            )));
        }
        let router = match lookups.find(plugin) {
            Some(FoundPlugin::Router(router)) => router,
            Some(FoundPlugin::BeyondLimit(limit)) => {
                return Err(self.failed(&format!(
                    "the cluster specifier plugin {plugin} is not executed, since the routes have more than {limit} of them"
                )));
            }
            None => {
                // Newer routes without it are about to be published.
                self.wait_for_routes(seen).await?;
                return Ok(None);
            }
        };
        match router.decide(query) {
            Routing::Targets(answer) => {
                let selected = self.select_target(&router, plugin, &answer.targets, query).await?;
                self.record_target(&router, selected.as_ref(), false);
                // It was checked when the response was received.
                let data = Some(&*answer.header_data).filter(|data| !data.is_empty());
                self.lookup_data = data.and_then(|data| HeaderValue::from_str(data).ok());
                Ok(selected)
            }
            Routing::Default(target) => {
                self.lookup_data = None;
                let selected = self.select_target(&router, plugin, slice::from_ref(&target), query).await?;
                self.record_target(&router, selected.as_ref(), true);
                Ok(selected)
            }
            Routing::Wait(mut end) => {
                // Without the plugin the lookup is cancelled.
                drop(router);
                // An error is the end of the lookup.
                let end = async move { drop(end.changed().await) };
                self.wait_for_lookup(end).await
            }
            Routing::Fail { reason, retry_at } if self.waits_for_ready => {
                self.telemetry.on_lookup_failed(&router.service());
                self.reason = Some(reason);
                self.wait_for_lookup(router.retry(retry_at)).await
            }
            Routing::Fail { reason, .. } => {
                self.telemetry.on_lookup_failed(&router.service());
                Err(self.failed(&reason))
            }
        }
    }

    /// Selects one of the targets of a response, or waits for newer routes.
    async fn select_target(
        &mut self,
        router: &Arc<LookupRouter>,
        plugin: &str,
        targets: &[Arc<str>],
        query: &RouteQuery<'_>,
    ) -> Result<Option<Selected>, Status> {
        let (selection, seen) = {
            let generation = self.context.published.load();
            (generation.select_target(query, plugin, targets), generation.number())
        };
        match selection {
            Selection::Selected(selected) => return Ok(Some(selected)),
            // A target that is not subscribed any more was removed with its response: another lookup follows.
            Selection::Wait if targets.iter().all(|target| router.has_target(target)) => {
                self.reason = Some(format!("the clusters {} are not known yet", targets.join(", ")).into());
                self.wait_for_routes(seen).await?;
                self.reason = None;
            }
            // The routes have changed.
            Selection::Wait | Selection::Lookup(_) | Selection::Fail(_) | Selection::NoRoute(_) => {}
        }
        Ok(None)
    }

    fn record_target(&mut self, router: &LookupRouter, selected: Option<&Selected>, is_default: bool) {
        if let Some(Selected { cluster, .. }) = selected {
            let (service, cluster) = (|| router.service(), cluster.name());
            self.telemetry.on_lookup(|| LookupTarget {
                service: service(),
                cluster: cluster.clone(),
                is_default,
            });
        }
    }

    /// Waits as one of the waiting calls.
    async fn wait_for_lookup(&mut self, wait: impl Future<Output = ()>) -> Result<Option<Selected>, Status> {
        self.queued()?;
        self.telemetry.on_wait();
        match self.until_shut_down(wait).await {
            Ok(()) => Ok(None),
            Err(end) => Err(self.ended(end, "the cluster of the call is being looked up")),
        }
    }
}

/// The header of calls with the header data of their response.
pub(super) const LOOKUP_DATA: HeaderName = HeaderName::from_static("x-google-rls-data");
