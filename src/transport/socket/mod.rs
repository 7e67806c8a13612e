//! The credentials of connections to management servers, and descriptions of their errors.

mod credentials;
mod hint;

pub(super) use self::{
    credentials::{CredentialSources, Loader, Secured},
    hint::{causes, explain, with_causes},
};
use crate::dial::Io;

/// A byte stream of any kind.
pub(super) type BoxedIo = Box<dyn Io>;
