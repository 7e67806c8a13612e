use super::OneOrMany;
use crate::protocol::{ServerId, SubId};

/// The subscriptions of one resource at the servers that it is requested from, or sent by. Most resources have one.
#[derive(Debug, Default)]
pub(crate) struct ServerSubscriptions(OneOrMany<(ServerId, SubId)>);

impl ServerSubscriptions {
    /// The subscription at one server.
    ///
    /// The number of servers with a subscription is that of the authority's servers at most, so that a search beats a map.
    pub(crate) fn at(&self, server: ServerId) -> Option<SubId> {
        self.iter().find(|(at, _)| *at == server).map(|(_, sub)| sub)
    }

    /// All subscriptions, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ServerId, SubId)> {
        self.0.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether more than one server has a subscription for it.
    ///
    /// A resource at one server takes the short path of unchanged responses, since no other server has a version of it that
    /// could be outdated.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Adds the subscription at a server that has none yet.
    pub(crate) fn add(&mut self, server: ServerId, sub: SubId) {
        debug_assert!(self.at(server).is_none(), "a resource has one subscription at a server");
        self.0.push((server, sub));
    }

    /// Removes the subscription at a server.
    pub(crate) fn remove(&mut self, server: ServerId) {
        self.0.retain(|(at, _)| *at != server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_by_server_in_their_order() {
        let mut subscriptions = ServerSubscriptions::default();
        assert!(subscriptions.is_empty());
        for server in 0..3 {
            subscriptions.add(ServerId(server), SubId(10 + server));
        }
        assert_eq!(subscriptions.at(ServerId(1)), Some(SubId(11)));
        subscriptions.remove(ServerId(0));
        assert_eq!(subscriptions.iter().map(|(server, _)| server.0).collect::<Vec<_>>(), [1, 2]);
        subscriptions.remove(ServerId(2));
        subscriptions.remove(ServerId(1));
        assert!(subscriptions.is_empty() && subscriptions.at(ServerId(1)).is_none());
    }
}
