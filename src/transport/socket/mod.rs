//! The credentials of connections to management servers, and descriptions of their errors.

mod credentials;
mod hint;

pub(super) use self::{
    credentials::{CallHeaders, CredentialSources, Loader, Secured},
    hint::{causes, explain, with_causes},
};
