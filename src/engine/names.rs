//! What is wanted, as applications say it, and the names that servers are asked for then.

use std::{fmt, sync::Arc};

use super::{Engine, Refusal};
use crate::{
    error::Code,
    name::{NameError, ResourceName},
    protocol::TypeId,
};

/// Which resources of a type are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Names {
    /// Everything that the server has for this node.
    All,
    /// One, by its name.
    One(Wanted),
    /// The members of a collection, by its name.
    Collection(Wanted),
}

/// A name that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    /// Text that may be a name.
    Text(Arc<str>),
    /// A name that was made in code, and may have attributes of the resource (rule C7).
    Name(ResourceName),
}

impl Names {
    /// What is wanted, in a word.
    pub(crate) fn text(&self) -> Arc<str> {
        match self {
            Self::All => "*".into(),
            Self::One(Wanted::Text(text)) | Self::Collection(Wanted::Text(text)) => text.clone(),
            Self::One(Wanted::Name(name)) | Self::Collection(Wanted::Name(name)) => name.to_string().into(),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Wanted {
    fn parse(&self) -> Result<ResourceName, NameError> {
        match self {
            Self::Text(text) => ResourceName::parse(text),
            Self::Name(name) => Ok(name.clone()),
        }
    }
}

impl<T: Into<Arc<str>>> From<T> for Wanted {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Refusal {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }
}

impl Engine {
    /// Checks the name of one resource. What it gives is what a server is asked for.
    pub(super) fn accept_one(&self, ty: TypeId, wanted: &Wanted) -> Result<ResourceName, Refusal> {
        let name = self.accept(wanted)?;
        if name.is_glob() {
            return Err(Refusal::invalid("a glob names many resources; use watch_all"));
        }
        self.check_type(ty, &name)?;
        Ok(self.additions.add_to(&name).without_directives())
    }

    /// Checks the name of a collection. What it gives is what a server is asked for.
    pub(super) fn accept_collection(&self, ty: TypeId, wanted: &Wanted) -> Result<ResourceName, Refusal> {
        let name = self.accept(wanted)?;
        if !name.is_glob() {
            return Err(Refusal::invalid(
                "neither a glob, which ends in `/*`, nor `*`; use watch for one resource",
            ));
        }
        if name.directives().is_some() {
            return Err(Refusal::invalid("a glob has no directives"));
        }
        self.check_type(ty, &name)?;
        Ok(self.additions.add_to(&name))
    }

    fn accept(&self, wanted: &Wanted) -> Result<ResourceName, Refusal> {
        let name = wanted.parse().map_err(|error| Refusal::invalid(error.to_string()))?;
        if name.as_str().is_empty() { Err(Refusal::invalid("the name is empty")) } else { Ok(name) }
    }

    /// An `xdstp:` name says its type, which must be the one that is wanted (rule C22).
    fn check_type(&self, ty: TypeId, name: &ResourceName) -> Result<(), Refusal> {
        let wanted = self.types[ty.index()].type_url();
        let wanted = wanted.strip_prefix("type.googleapis.com/").unwrap_or(wanted);
        match name.resource_type() {
            Some(named) if named != wanted => {
                Err(Refusal::invalid(format!("the name is of type {named}, not of {wanted}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}
