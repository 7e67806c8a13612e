use crate::protocol::{ServerId, SubId};

/// The places of one resource at the servers that are asked for it, or that send it. Most have one.
#[derive(Debug, Default)]
pub(crate) struct Places {
    first: Option<Place>,
    others: Vec<Place>,
}

type Place = (ServerId, SubId);

impl Places {
    /// The place at one server.
    pub(crate) fn at(&self, server: ServerId) -> Option<SubId> {
        self.iter().find(|(at, _)| *at == server).map(|(_, sub)| sub)
    }

    /// All places, in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Place> {
        self.first.iter().chain(&self.others).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether more than one server has a place for it.
    pub(crate) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// Adds the place at a server where there is none yet.
    pub(crate) fn add(&mut self, server: ServerId, sub: SubId) {
        debug_assert!(self.at(server).is_none(), "a resource has one place at a server");
        match self.first {
            None => self.first = Some((server, sub)),
            Some(_) => self.others.push((server, sub)),
        }
    }

    /// Removes the place at a server.
    pub(crate) fn remove(&mut self, server: ServerId) {
        if self.first.is_some_and(|(at, _)| at == server) {
            self.first = (!self.others.is_empty()).then(|| self.others.remove(0));
        } else {
            self.others.retain(|(at, _)| *at != server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_by_server_in_their_order() {
        let mut places = Places::default();
        assert!(places.is_empty());
        for server in 0..3 {
            places.add(ServerId(server), SubId(10 + server));
        }
        assert_eq!(places.at(ServerId(1)), Some(SubId(11)));
        places.remove(ServerId(0));
        assert_eq!(places.iter().map(|(server, _)| server.0).collect::<Vec<_>>(), [1, 2]);
        places.remove(ServerId(2));
        places.remove(ServerId(1));
        assert!(places.is_empty() && places.at(ServerId(1)).is_none());
    }
}
