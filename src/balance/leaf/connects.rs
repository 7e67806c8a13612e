//! The turns of a cluster's attempts to connect (CH11.8).

use super::{HOSTS, Leaf};
use crate::balance::{
    command::Purpose,
    connectivity::Connectivity,
    connects::{QueueId, QueuePart, Urgency},
};

impl<H: Clone> Leaf<H> {
    /// How urgent an attempt of an endpoint is, and with which others it waits.
    pub(in crate::balance) fn turn(
        &self,
        member: usize,
        purpose: Purpose,
        is_requested: bool,
    ) -> (Urgency, QueueId) {
        let urgency = match purpose {
            Purpose::Replace(_) => Urgency::Replacement,
            Purpose::Further => Urgency::Requested,
            Purpose::First { .. } if is_requested => Urgency::Requested,
            Purpose::First { was_silent: true } => Urgency::Silent,
            Purpose::First { was_silent: false } => match self.connectivity() {
                Connectivity::Ready => Urgency::Ordinary,
                Connectivity::Idle | Connectivity::Connecting | Connectivity::TransientFailure => {
                    Urgency::Unserved
                }
            },
        };
        (urgency, QueueId { leaf: self.place, part: self.queue_part(member) })
    }

    fn queue_part(&self, member: usize) -> QueuePart {
        if member == HOSTS {
            return QueuePart::SessionEndpoints;
        }
        let places = self.members.get(member).map(|it| it.places.as_slice()).unwrap_or_default();
        // One that is listed several times waits with the endpoints of the preferred priority.
        QueuePart::Priority(places.iter().map(|place| place.priority).min().unwrap_or_default())
    }
}
