//! Two types of resources that are as simple as can be, and what a watch sees of them.

use bytes::{Bytes, BytesMut};

use crate::{
    error::WatchError,
    observed::Observed,
    pb::google::protobuf::Any,
    resource::{Context, Erased, Invalid, Resource},
    wire,
};

/// A resource of a type whose responses are complete: a name, and a text that must not be `bad`.
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct Full(pub(in crate::engine) String);

/// A resource of a type whose responses hold what is new.
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct Part(pub(in crate::engine) String);

impl Resource for Full {
    const TYPE_URL: &'static str = "type.googleapis.com/test.Full";
    const FULL_STATE: bool = true;
    const COLLECTION_TYPE_URL: Option<&'static str> = Some("type.googleapis.com/test.FullCollection");

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        text(bytes).map(Self)
    }
}

impl Resource for Part {
    const TYPE_URL: &'static str = "type.googleapis.com/test.Part";

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        text(bytes).map(Self)
    }
}

/// A [`Full`] of a type that has a service of its own.
#[cfg(test)]
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct Cds(pub(in crate::engine) String);

/// A [`Part`] of a type that has a service of its own.
#[cfg(test)]
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct Eds(pub(in crate::engine) String);

#[cfg(test)]
impl Resource for Cds {
    const TYPE_URL: &'static str = crate::resource::Cluster::TYPE_URL;
    const FULL_STATE: bool = true;

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        text(bytes).map(Self)
    }
}

#[cfg(test)]
impl Resource for Eds {
    const TYPE_URL: &'static str = crate::resource::ClusterLoadAssignment::TYPE_URL;

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        text(bytes).map(Self)
    }
}

/// The message of a [`Full`] or [`Part`].
pub(in crate::engine) fn message(name: &str, text: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    for (field, value) in [(1, name), (2, text)] {
        prost::encoding::string::encode(field, &value.to_owned(), &mut bytes);
    }
    bytes.freeze()
}

/// The same in an `Any`.
pub(in crate::engine) fn any<T: Resource>(name: &str, text: &str) -> Any {
    Any { type_url: T::TYPE_URL.into(), value: message(name, text) }
}

/// The contents of initial resources, which no server has.
pub(in crate::engine) const INITIAL: &str = "initial";

fn text(bytes: &[u8]) -> Result<String, Invalid> {
    match wire::string_field(bytes, 2) {
        Ok("bad") => Err(Invalid::field("text", "it is bad")),
        Ok(text) => Ok(text.to_owned()),
        Err(malformed) => Err(Invalid::new(malformed.to_string())),
    }
}

/// What a watch sees.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::engine) enum Seen {
    Present { text: String, warning: Option<WatchError> },
    Absent(WatchError),
}

impl Seen {
    pub(in crate::engine) fn of(observed: &Erased) -> Self {
        if let Some(full) = observed.downcast_ref::<Observed<Full>>() {
            Self::of_one(full, |full| &full.0)
        } else if let Some(part) = observed.downcast_ref::<Observed<Part>>() {
            Self::of_one(part, |part| &part.0)
        } else {
            panic!("published something unknown")
        }
    }

    fn of_one<T>(observed: &Observed<T>, text: impl Fn(&T) -> &str) -> Self {
        match observed {
            Observed::Pending => panic!("nothing new was published"),
            Observed::Absent { reason } => Self::Absent(reason.clone()),
            Observed::Present { resource, warning, .. } => {
                Self::Present { text: text(resource).to_owned(), warning: warning.clone() }
            }
        }
    }
}
