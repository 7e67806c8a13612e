//! The turns of a cluster's attempts to connect (CH11.8).

use super::Leaf;
use crate::balance::{
    command::{Holder, Purpose},
    connectivity::Connectivity,
    connects::{QueueId, QueuePart, Urgency},
};

impl<H: Clone> Leaf<H> {
    /// How urgent an attempt of an endpoint is, and with which others it waits.
    pub(in crate::balance) fn turn(
        &self,
        holder: Holder,
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
        (urgency, QueueId { leaf: self.place, part: self.queue_part(holder) })
    }

    fn queue_part(&self, holder: Holder) -> QueuePart {
        if holder == Holder::SessionEndpoints {
            return QueuePart::SessionEndpoints;
        }
        let places = holder
            .endpoint()
            .and_then(|member| self.members.get(member))
            .map(|endpoint| endpoint.places.as_slice())
            .unwrap_or_default();
        // One that is listed several times waits with the endpoints of the preferred priority.
        QueuePart::Priority(places.iter().map(|place| place.priority).min().unwrap_or_default())
    }
}
