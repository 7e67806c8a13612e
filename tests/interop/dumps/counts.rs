//! The parts of recorded resources: as many are shown as the server sent, or the others are named as left out.

use prost::Message;
use xdskit::{
    pb::envoy::config::{
        endpoint::v3::ClusterLoadAssignment as AssignmentMessage, listener::v3::Listener as ListenerMessage,
        route::v3::RouteConfiguration as RouteMessage,
    },
    resource::{
        Cluster, ClusterLoadAssignment, Inspected, Listener, Remarks, RouteConfiguration,
        listener::ListenerKind,
    },
};

/// A type of resources whose parts can be counted.
pub(super) trait Parts: Sized {
    /// Asserts that a resource that gRPC's rules accept has all parts of the message, or names them as left out.
    fn assert_whole(message: &[u8], typed: &Self);
}

impl Parts for ClusterLoadAssignment {
    fn assert_whole(message: &[u8], typed: &Self) {
        let message = AssignmentMessage::decode(message).expect("it was recorded");
        let name = &message.cluster_name;
        let is_left_out = |place: usize| left_out(&typed.remarks, &format!("endpoints[{place}]")) > 0;
        let places = message.endpoints.iter().enumerate();
        let (left_out, used): (Vec<_>, Vec<_>) = places.partition(|(place, _)| is_left_out(*place));
        assert_eq!(
            used.len(),
            typed.localities().count() + typed.leds_localities.len(),
            "localities of {name}"
        );
        let sent: usize = used.iter().map(|(_, place)| place.lb_endpoints.len()).sum();
        assert_eq!(sent, typed.endpoints().count(), "endpoints of {name}: {:?}", typed.remarks);
        // Those that can be read are kept without being used.
        assert!(typed.unweighted_localities.len() <= left_out.len(), "{name}");
    }
}

impl Parts for RouteConfiguration {
    fn assert_whole(message: &[u8], typed: &Self) {
        let message = RouteMessage::decode(message).expect("it was recorded");
        assert_eq!(
            message.virtual_hosts.len(),
            typed.virtual_hosts.len(),
            "virtual hosts of {}",
            message.name
        );
        for (sent, host) in message.virtual_hosts.iter().zip(typed.virtual_hosts.iter()) {
            assert_eq!(
                sent.routes.len(),
                host.routes.len() + host.omitted_routes.len(),
                "routes of {}",
                sent.name
            );
        }
    }
}

impl Parts for Listener {
    fn assert_whole(message: &[u8], typed: &Self) {
        let message = ListenerMessage::decode(message).expect("it was recorded");
        let sent = message.filter_chains.len() + usize::from(message.default_filter_chain.is_some());
        match &typed.kind {
            ListenerKind::Api(_) => assert!(message.api_listener.is_some(), "{}", message.name),
            ListenerKind::Socket(socket) => {
                let shown = socket.filter_chains.len() + usize::from(socket.default_filter_chain.is_some());
                let left_out = left_out(&typed.remarks, "filter_chains[");
                assert_eq!(sent, shown + left_out, "chains of {}: {:?}", message.name, typed.remarks);
            }
            other => panic!("{}: {other:?}", message.name),
        }
    }
}

/// A cluster has no parts that can be left out.
impl Parts for Cluster {
    fn assert_whole(_: &[u8], _: &Self) {}
}

/// Asserts it of a resource that is accepted.
pub(super) fn assert_whole<T: Parts + xdskit::Resource>(resource: &Inspected<T>) {
    if let Ok(typed) = resource.typed() {
        T::assert_whole(resource.bytes(), typed);
    }
}

/// The number of parts at this path that are named as left out.
fn left_out(remarks: &Remarks, path: &str) -> usize {
    remarks.left_out().iter().filter(|part| part.path.starts_with(path)).count()
}
