//! The selection of resources, as applications express it, and the resulting names in requests.
//!
//! Names are checked before anything is requested. A name that cannot be one of the type is refused at once, with an error
//! that blames the caller; a server would only not answer it, and the does-not-exist time would pass first.
//!
//! | watch | accepts | refuses |
//! |---|---|---|
//! | one resource | names of both forms, `#entry=` of a list, alternatives | `*`, globs, whole lists, names of other types |
//! | a collection | globs, lists, alternatives of these | single resources, entries of lists |

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    error::{Blame, Code, Subject, WatchError},
    name::{Directives, NameError, ResourceName},
    observed::{Erase, ErasedMembers, ErasedObserved},
    protocol::TypeId,
    resource::{Erased, ResourceType, Version},
};

/// The selected resources of a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Selection {
    /// Everything that the server has for this node.
    All,
    /// What the server sends of the type without a request for it.
    Pushed,
    /// Nothing: a consumer of batches that subscribes later.
    Nothing,
    /// One, by its name.
    One(SelectedName),
    /// The members of a collection, by its name.
    Collection(SelectedName),
}

/// The resources of a consumer of batches.
#[derive(Debug)]
pub(crate) struct SelectedBatches {
    pub(crate) ty: ResourceType,
    pub(crate) names: Selection,
    /// Removes the type of what watches are published.
    pub(crate) erase: Erase,
    /// The versions of the resources that the consumer has in its store, of a type whose resources are not kept.
    pub(crate) versions: BTreeMap<Arc<str>, Version>,
}

/// A selected name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SelectedName {
    /// Text that may be a name.
    Text(Arc<str>),
    /// A name that was made in code, and may have attributes of the resource (rule X7).
    Name(Box<ResourceName>),
}

/// A resource name and the type of the resource. Names of the older form do not have the type in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct TypedName<'a> {
    pub(super) ty: TypeId,
    pub(super) name: &'a ResourceName,
}

impl Selection {
    /// The selection as one name.
    pub(crate) fn text(&self) -> Arc<str> {
        match self {
            Self::All => "*".into(),
            Self::Pushed => PUSHED.into(),
            Self::Nothing => "".into(),
            Self::One(SelectedName::Text(text)) | Self::Collection(SelectedName::Text(text)) => text.clone(),
            Self::One(SelectedName::Name(name)) | Self::Collection(SelectedName::Name(name)) => {
                name.to_string().into()
            }
        }
    }

    /// The canonical name of a single resource; `None` for a selection of many. A name that is not valid stands for itself: its watch is
    /// refused.
    pub(super) fn single(&self) -> Option<Arc<str>> {
        match self {
            Self::One(selected) => Some(match selected.parse() {
                Ok(name) => name.canonical(),
                Err(_) => self.text(),
            }),
            Self::All | Self::Pushed | Self::Nothing | Self::Collection(_) => None,
        }
    }

    /// The state that a refused watch sees.
    pub(super) fn refused(&self, ty: ResourceType, reason: WatchError) -> Erased {
        match self {
            Self::All | Self::Pushed | Self::Nothing | Self::Collection(_) => {
                Arc::new(ErasedMembers::refused(reason))
            }
            Self::One(_) => ty.observe(ErasedObserved::Absent { reason }),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl SelectedName {
    /// The name in its parsed form; the error if the text is none.
    fn parse(&self) -> Result<ResourceName, NameError> {
        match self {
            Self::Text(text) => ResourceName::parse_shared(text),
            Self::Name(name) => Ok((**name).clone()),
        }
    }
}

impl<T: Into<Arc<str>>> From<T> for SelectedName {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// The reason for refusing a watch.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct Refusal {
    /// The code of the error that the watch has.
    pub(super) code: Code,
    /// The text of the error, without the name.
    pub(super) message: String,
}

impl Refusal {
    /// The error of a watch.
    pub(super) fn about(self, subject: Subject) -> WatchError {
        WatchError::new(self.code, Blame::Local, subject, self.message)
    }

    /// A refusal because of the name itself, which no later update can change.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }
}

/// Checks the name of one resource, which may have directives.
pub(super) fn accept_one(ty: ResourceType, selected: &SelectedName) -> Result<ResourceName, Refusal> {
    let name = accept(selected)?;
    if name.as_str() == WILDCARD {
        return Err(Refusal::invalid(NOT_A_NAME));
    }
    if name.is_glob() {
        return Err(Refusal::invalid("a glob names many resources; use watch_all"));
    }
    check_type(ty, &name)?;
    let is_whole = name.directives().is_none_or(|directives| directives.entry().is_none());
    // The name of a list is known by its type's suffix, which a type without lists may have by chance.
    match name.is_list() && is_whole && ty.list().is_some() {
        true => {
            Err(Refusal::invalid("a list names many resources; use watch_all, or `#entry=` for one of them"))
        }
        false => Ok(name),
    }
}

/// Checks the name of a collection.
pub(super) fn accept_collection(ty: ResourceType, selected: &SelectedName) -> Result<ResourceName, Refusal> {
    let name = accept(selected)?;
    check_collection(ty, &name)?;
    Ok(name)
}

/// Checks a collection and all of its alternatives, which are collections as well.
fn check_collection(ty: ResourceType, name: &ResourceName) -> Result<(), Refusal> {
    if !name.is_collection() {
        return Err(Refusal::invalid(NO_COLLECTION));
    }
    if name.directives().is_some_and(|directives| directives.entry().is_some()) {
        return Err(Refusal::invalid("a collection is no entry; use watch for one entry of a list"));
    }
    check_type(ty, name)?;
    match name.directives().and_then(Directives::alt) {
        Some(alt) => check_collection(ty, alt),
        None => Ok(()),
    }
}

/// Checks a name and all of its alternatives.
pub(super) fn check_types(ty: ResourceType, name: &ResourceName) -> Result<(), Refusal> {
    check_type(ty, name)?;
    match name.directives().and_then(Directives::alt) {
        Some(alt) => check_types(ty, alt),
        None => Ok(()),
    }
}

/// The parsed name, unless it is empty.
fn accept(selected: &SelectedName) -> Result<ResourceName, Refusal> {
    let name = selected.parse().map_err(|error| Refusal::invalid(error.to_string()))?;
    if name.as_str().is_empty() { Err(Refusal::invalid("the name is empty")) } else { Ok(name) }
}

/// An `xdstp:` name includes its type, which must be the selected one (X22), or where that is meant, that of its lists.
fn check_type(ty: ResourceType, name: &ResourceName) -> Result<(), Refusal> {
    let requested = short(ty.type_url());
    let Some(named) = name.resource_type() else { return Ok(()) };
    let is_in_list = name.is_list() && !ty.is_list();
    let list = ty.list().filter(|_| is_in_list);
    let expected = list.map_or(requested, |list| short(list.type_url()));
    match (named == expected, is_in_list) {
        (false, _) => Err(Refusal::invalid(format!("the name is of type {named}, not of {requested}"))),
        (true, _) => Ok(()),
    }
}

/// The type of a type URL, as names have it.
fn short(type_url: &str) -> &str {
    type_url.strip_prefix("type.googleapis.com/").unwrap_or(type_url)
}

/// The text that stands for all resources of a type in requests, so that no single resource can have it for a name.
pub(super) const WILDCARD: &str = "*";

pub(super) const NOTHING: &str = "nothing is selected; names can be added to batches alone";

/// What is sent without a request for it, in errors and logs.
const PUSHED: &str = "(pushed)";

const NOT_A_NAME: &str =
    "`*` is the wildcard and not the name of a resource; use watch_all for all resources of the type";

const NO_COLLECTION: &str =
    "neither a glob, which ends in `/*`, nor a list collection, nor `*`; use watch for one resource";
