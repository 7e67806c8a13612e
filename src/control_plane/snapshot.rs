//! Snapshots of a control plane's resources, without a server.

use super::AnyResource;
use crate::resolve::SnapshotBuilder;

impl SnapshotBuilder {
    /// Adds a resource of a control plane, such as one of its [builders](super::resources). It replaces one of the same type and name.
    ///
    /// ```
    /// use std::time::Instant;
    /// use xdskit::{
    ///     Snapshot,
    ///     control_plane::resources::{cluster, endpoints, lb_policy},
    /// };
    ///
    /// let snapshot = Snapshot::builder("xds:///game")
    ///     .resource(cluster("game").lb_policy(lb_policy::ring_hash(1024, 4096)))
    ///     .resource(endpoints("game").locality("eu", "a", ["10.0.0.1:4000", "10.0.0.2:4000"]))
    ///     .build(Instant::now())?;
    /// assert_eq!(snapshot.cluster("game").unwrap().endpoints().count(), 2);
    /// # Ok::<(), xdskit::resolve::SnapshotError>(())
    /// ```
    pub fn resource(self, resource: impl Into<AnyResource>) -> Self {
        let resource = resource.into();
        self.encoded(resource.type_url(), resource.bytes().clone())
    }
}
