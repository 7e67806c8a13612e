//! The methods of the discovery services, and the types that they imply.

use tonic::Status;

use super::message::Variant;
use crate::{
    config::TransportApiVersion,
    resource::services::{Methods, Service},
};

/// A method of a discovery service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Method {
    /// The variant of the protocol.
    pub(super) variant: Variant,
    /// The version of the method, and of type URLs on its streams.
    pub(super) api_version: TransportApiVersion,
    /// The v3 type URL of a stream of one type; `None` for an aggregated one.
    pub(super) type_url: Option<&'static str>,
}

impl Method {
    /// The method of a path, if it is served.
    pub(super) fn of(path: &str) -> Option<Self> {
        [TransportApiVersion::V3, TransportApiVersion::V2].into_iter().find_map(|api_version| {
            let aggregated = variant(api_version.ads(), path).map(|variant| (variant, None));
            let (variant, type_url) = aggregated.or_else(|| {
                Service::all().iter().find_map(|service| {
                    let variant = variant(&service.spelling(api_version)?.methods, path)?;
                    Some((variant, Some(service.v3.type_url)))
                })
            })?;
            Some(Self { variant, api_version, type_url })
        })
    }

    /// The v3 type URL of a request. A missing one is that of the stream, and an error on an aggregated stream.
    pub(super) fn type_of<'a>(&self, written: &'a str) -> Result<&'a str, Status> {
        let type_url = match self.type_url {
            Some(implied) if written.is_empty() => return Ok(implied),
            Some(_) | None => self.api_version.unspell(written),
        };
        // A v3 type URL on a stream of v2 is an error: responses would have another type URL than the client asked for.
        // Types of applications have one spelling, which is that of both versions.
        let spelled = self.api_version.spell(type_url);
        if spelled != written {
            return Err(Status::invalid_argument(format!("type_url: {written:?} is {spelled:?} in v2")));
        }
        match self.type_url {
            Some(only) if only != type_url => {
                let only = self.api_version.spell(only);
                let reason = format!("type_url: {written:?} on a stream of {only:?}");
                Err(Status::invalid_argument(reason))
            }
            Some(_) | None => Ok(type_url),
        }
    }
}

/// Returns the variant of a path among the methods of a service.
fn variant(methods: &Methods, path: &str) -> Option<Variant> {
    match path {
        path if Some(path) == methods.sotw => Some(Variant::Sotw),
        path if path == methods.delta => Some(Variant::Delta),
        _ => None,
    }
}
