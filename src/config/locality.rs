//! Localities: where a node or an endpoint is.

use std::{cmp::Ordering, fmt};

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// A locality: the location of a client ([`Node::locality`](super::Node::locality)) or of endpoints
/// ([`LocalityEndpoints`](crate::resource::endpoints::LocalityEndpoints)), by region, zone and sub-zone. Each part
/// may be empty.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Locality {
    /// All parts, concatenated: there are many localities, and this takes one allocation, or none.
    text: Box<str>,
    /// The start of the zone in the text.
    zone: u32,
    /// The start of the sub-zone in the text.
    sub_zone: u32,
}

impl Locality {
    /// A locality by its parts.
    ///
    /// # Panics
    /// A region and its zone are longer than 4 GiB together.
    pub fn new(region: &str, zone: &str, sub_zone: &str) -> Self {
        let start =
            |length: usize| u32::try_from(length).expect("names of localities are shorter than 4 GiB");
        Self {
            text: [region, zone, sub_zone].concat().into(),
            zone: start(region.len()),
            sub_zone: start(region.len() + zone.len()),
        }
    }

    /// The region, such as `europe-west1`.
    pub fn region(&self) -> &str {
        &self.text[..self.zone as usize]
    }

    /// The zone in the region, such as `europe-west1-b`.
    pub fn zone(&self) -> &str {
        &self.text[self.zone as usize..self.sub_zone as usize]
    }

    /// The sub-zone, such as a rack.
    pub fn sub_zone(&self) -> &str {
        &self.text[self.sub_zone as usize..]
    }

    /// Region, zone and sub-zone.
    fn parts(&self) -> [&str; 3] {
        [self.region(), self.zone(), self.sub_zone()]
    }
}

/// Localities are ordered by region, then zone, then sub-zone.
impl Ord for Locality {
    fn cmp(&self, other: &Self) -> Ordering {
        // Not by the text, which is the same for other divisions of it into parts.
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Locality {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [region, zone, sub_zone] = self.parts();
        let mut f = f.debug_struct("Locality");
        f.field("region", &region).field("zone", &zone).field("sub_zone", &sub_zone).finish()
    }
}

/// The form of gRPC's metrics: `{region="R", zone="Z", sub_zone="S"}` (A78).
impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [region, zone, sub_zone] = self.parts();
        write!(f, "{{region={region:?}, zone={zone:?}, sub_zone={sub_zone:?}}}")
    }
}

impl Serialize for Locality {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let [region, zone, sub_zone] = self.parts();
        let mut object = to.serialize_struct("Locality", 3)?;
        object.serialize_field("region", region)?;
        object.serialize_field("zone", zone)?;
        object.serialize_field("sub_zone", sub_zone)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_apart() {
        let place = Locality::new("r", "zo", "s");
        assert_eq!((place.region(), place.zone(), place.sub_zone()), ("r", "zo", "s"));
        assert_ne!(place, Locality::new("rz", "o", "s"));
        assert_eq!(format!("{place:?}"), r#"Locality { region: "r", zone: "zo", sub_zone: "s" }"#);
        assert_eq!(Locality::default(), Locality::new("", "", ""));
    }

    #[test]
    fn places_are_in_the_order_of_their_parts() {
        let names = ["", "a", "ab", "b"];
        let all = || names.iter().flat_map(|r| names.iter().flat_map(move |z| names.map(|s| (*r, *z, s))));
        for (one, other) in all().flat_map(|one| all().map(move |other| (one, other))) {
            let place = |(region, zone, sub_zone)| Locality::new(region, zone, sub_zone);
            assert_eq!(place(one).cmp(&place(other)), one.cmp(&other));
        }
    }
}
