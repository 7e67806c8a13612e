//! What is served, encoded beforehand.

use bytes::{Bytes, BytesMut};

use crate::{
    mesh,
    wire::{self, Kind, Variant},
};

/// So many clusters, and an assignment for each.
pub(crate) struct Catalog {
    version: u64,
    clusters: Set,
    endpoints: Set,
}

impl Catalog {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            version: 1,
            clusters: Set::new(Kind::Clusters, count),
            endpoints: Set::new(Kind::Endpoints, count),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Gives all a new version.
    pub(crate) fn touch(&mut self) {
        self.version += 1;
    }

    /// Makes one resource another one.
    pub(crate) fn change(&mut self, kind: Kind, number: usize) {
        self.version += 1;
        let version = self.version;
        match kind {
            Kind::Clusters => self.clusters.change(kind, number, version),
            Kind::Endpoints => self.endpoints.change(kind, number, version),
        }
    }

    pub(crate) fn body(&self, kind: Kind, variant: Variant) -> &Body {
        let set = match kind {
            Kind::Clusters => &self.clusters,
            Kind::Endpoints => &self.endpoints,
        };
        match variant {
            Variant::Sotw => &set.sotw,
            Variant::Delta => &set.delta,
        }
    }
}

struct Set {
    sotw: Body,
    delta: Body,
}

impl Set {
    fn new(kind: Kind, count: usize) -> Self {
        let body = |variant| Body::new((0..count).map(|number| entry(variant, kind, number, 1)).collect());
        Self { sotw: body(Variant::Sotw), delta: body(Variant::Delta) }
    }

    fn change(&mut self, kind: Kind, number: usize, version: u64) {
        self.sotw.replace(number, entry(Variant::Sotw, kind, number, version));
        self.delta.replace(number, entry(Variant::Delta, kind, number, version));
    }
}

/// The resources of a type as they stand in responses of a variant.
pub(crate) struct Body {
    entries: Vec<Bytes>,
    all: Bytes,
}

impl Body {
    fn new(entries: Vec<Bytes>) -> Self {
        let all = concat(&entries);
        Self { entries, all }
    }

    fn replace(&mut self, number: usize, entry: Bytes) {
        if let Some(place) = self.entries.get_mut(number) {
            *place = entry;
            self.all = concat(&self.entries);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those with these numbers, one after the other, ascending.
    pub(crate) fn of(&self, numbers: &[usize]) -> Bytes {
        match numbers {
            [one] => self.entries[*one].clone(),
            all if all.len() == self.len() => self.all.clone(),
            some => concat(some.iter().map(|number| &self.entries[*number])),
        }
    }
}

fn entry(variant: Variant, kind: Kind, number: usize, version: u64) -> Bytes {
    let turn = u32::try_from((version - 1) % 200).expect("it is small");
    let resource = match kind {
        Kind::Clusters => mesh::cluster(number, turn),
        Kind::Endpoints => mesh::assignment(number, turn),
    };
    wire::entry(variant, kind, &mesh::name(number), version, &resource)
}

fn concat<'a>(entries: impl IntoIterator<Item = &'a Bytes> + Clone) -> Bytes {
    let length = entries.clone().into_iter().map(Bytes::len).sum();
    let mut all = BytesMut::with_capacity(length);
    entries.into_iter().for_each(|entry| all.extend_from_slice(entry));
    all.freeze()
}
