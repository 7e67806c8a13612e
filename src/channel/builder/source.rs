//! The client of a channel: that of the application, or the shared one of a bootstrap.

use std::sync::Arc;

use crate::{
    Bootstrap, Client,
    channel::{error::ChannelError, security::SecuritySettings},
    config::{Target, check_target},
};

/// The client of a channel, or the bootstrap of the shared one.
#[derive(Debug)]
pub(super) enum Source {
    Client(Client),
    Bootstrap(Arc<Bootstrap>),
}

/// The client of a channel; without a source, that of the environment's bootstrap.
pub(super) fn client(
    target: &Target,
    source: Option<Source>,
    security: &SecuritySettings,
) -> Result<Client, ChannelError> {
    let bootstrap = match source {
        Some(Source::Client(client)) => return Ok(client),
        Some(Source::Bootstrap(bootstrap)) => bootstrap,
        None => {
            // Before the environment is read: a typing error is not to be reported as a missing bootstrap.
            check_target(target.as_str())?;
            let error = |error| ChannelError::Bootstrap { target: target.to_string(), error };
            Arc::new(Bootstrap::from_env().map_err(error)?)
        }
    };
    bootstrap.read_target(target.as_str())?;
    Ok(security.of_client(Client::builder(bootstrap)).shared()?)
}
