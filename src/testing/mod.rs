//! Tools for the tests of applications that use this crate: a management server under the control of the test.
//!
//! - [`TestControlPlane`]: a management server on loopback with the resources of the test ([`set`](TestControlPlane::set)),
//!   expectations of the requests of clients, and scripted faults.
//! - [`resources`]: builders of resources.
//! - [`FaultyProxy`]: a proxy that breaks the connection at any byte.
//!
//! ```
//! use xdskit::testing::{
//!     TestControlPlane,
//!     resources::{cluster, endpoints, listener, route, route_config},
//! };
//!
//! #[tokio::main]
//! async fn main() {
//!     let control_plane = TestControlPlane::start().await;
//!     control_plane.update(|tx| {
//!         tx.set(listener("shop").rds("routes"));
//!         tx.set(route_config("routes").virtual_host(["*"], [route::prefix("/").cluster("shop")]));
//!         tx.set(cluster("shop"));
//!         tx.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
//!     });
//!     let bootstrap = control_plane.bootstrap_json(); // for the application
//!     assert!(bootstrap.contains(&control_plane.addr().to_string()));
//!     control_plane.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).draining("10.0.0.1:80"));
//!     control_plane.stop().await; // Check the application without its server.
//!     control_plane.restart().await;
//! }
//! ```
//!
//! Both variants of the protocol are supported. The server confirms resources with a time to live
//! ([`AnyResource::with_ttl`](crate::control_plane::AnyResource::with_ttl)), unless it is [held](TestControlPlane::hold).
//! It also supports redirects ([`AnyResource::redirect`](crate::control_plane::AnyResource::redirect)), list
//! collections ([`resources::collection`]), errors in place of resources ([`TestControlPlane::set_error`]), and globs of
//! `xdstp:` names.
//!
//! Clients can be asked for load reports (LRS) by [`TestControlPlane::ask_reports`], and expected to send them by
//! [`expect_load`](TestControlPlane::expect_load).
//!
//! Calls of a channel use an update later than its ACK:
//! [`Channel::wait_until_applied`](../channel/struct.Channel.html#method.wait_until_applied) waits for that (feature `channel`).
//!
//! Nothing here sleeps: a test waits for an event, and fails with a reason if the event does not occur in time.

mod bootstrap;
mod control_plane;
mod expect;
mod loads;
mod proxy;
mod record;
mod subscriptions;

pub use crate::control_plane::resources;
pub use control_plane::TestControlPlane;
pub use expect::{Ack, ExpectTimeout, Nack};
pub use proxy::{Direction, FaultyProxy};
pub use record::{RecordedRequest, Requests};
