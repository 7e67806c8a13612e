//! A certificate provider that does what a test has it do.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fmt, future::pending, sync::Arc};

use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use super::{Providers, fixture};
use crate::{
    base::Custom,
    config::{Bootstrap, CertificateProvider, Server},
    resource::{
        Context, Extension, Invalid, Payload, Registry,
        tls::{CertificateProviderPlugin, CertificatePublisher, ProviderRun},
    },
};

type Script = Arc<dyn Fn(CertificatePublisher) -> ProviderRun + Send + Sync>;

/// A plugin that does what a test has it do. Two are equal if they have the same name.
#[derive(Clone)]
pub(crate) struct Scripted {
    name: &'static str,
    script: Script,
}

impl Scripted {
    pub(crate) fn new(
        name: &'static str,
        script: impl Fn(CertificatePublisher) -> ProviderRun + Send + Sync + 'static,
    ) -> Self {
        Self { name, script: Arc::new(script) }
    }

    /// A plugin whose publishers go to the test, and which then runs for ever.
    pub(crate) fn handed(name: &'static str) -> (Self, mpsc::UnboundedReceiver<CertificatePublisher>) {
        let (publishers, received) = mpsc::unbounded_channel();
        let script = move |publisher| -> ProviderRun {
            publishers.send(publisher).unwrap();
            Box::pin(pending())
        };
        (Self::new(name, script), received)
    }
}

impl Extension for Scripted {
    const TYPE_NAME: &'static str = "scripted";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::new("made in code"))
    }
}

impl CertificateProviderPlugin for Scripted {
    fn run(&self, publisher: CertificatePublisher) -> ProviderRun {
        (self.script)(publisher)
    }
}

impl PartialEq for Scripted {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for Scripted {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(to)
    }
}

/// The instances of plugins.
pub(crate) fn providers(all: &[(&str, &Scripted)]) -> Arc<Providers> {
    let builder = Bootstrap::builder().server(Server::new("localhost:1").insecure());
    let builder = all.iter().fold(builder, |builder, (name, plugin)| {
        builder.certificate_provider(*name, CertificateProvider::Custom(Custom::new((*plugin).clone())))
    });
    let registry = Registry::new().with_certificate_plugin::<Scripted>();
    Providers::new(&builder.build().unwrap(), &registry, fixture::crypto())
}
