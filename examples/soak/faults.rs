//! The injected faults.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tonic::Status;
use xdskit::{control_plane::session::Held, testing::Direction};

use crate::world::{Kind, Site, World};

/// A fault of a server, or of the network to it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Cut,
    CutWithin,
    Stall,
    BlackHole,
    StreamsEnd,
    Freeze,
    Deaf,
    Stop,
    Restart,
}

/// Injects faults into a server at random times; at the end it is healthy.
pub(crate) async fn break_site(world: Arc<World>, site: usize, mut random: fastrand::Rng, deadline: Instant) {
    loop {
        sleep(Duration::from_millis(random.u64(200..4000))).await;
        if Instant::now() >= deadline {
            return;
        }
        let fault = random.choice(Fault::ALL).unwrap_or(Fault::Cut);
        world.note_fault(fault.name());
        let time = Duration::from_millis(random.u64(100..5000));
        fault.strike(&world.sites()[site], time, random.u64(1..5000)).await;
    }
}

/// Invalidates or deletes resources for a while.
pub(crate) async fn spoil(world: Arc<World>, mut random: fastrand::Rng, deadline: Instant) {
    let items = world.items();
    while Instant::now() < deadline {
        let index = random.usize(..items.len());
        let deletes = items[index].kind == Kind::PassingCluster && random.bool();
        world.note_fault(if deletes { "deleted resource" } else { "bad resource" });
        world.change(index, |state| if deletes { state.is_deleted = true } else { state.is_bad = true });
        sleep(Duration::from_millis(random.u64(10..300))).await;
        world.change(index, |state| (state.is_bad, state.is_deleted) = (false, false));
        sleep(Duration::from_millis(random.u64(10..300))).await;
    }
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::Cut,
        Self::CutWithin,
        Self::Stall,
        Self::BlackHole,
        Self::StreamsEnd,
        Self::Freeze,
        Self::Deaf,
        Self::Stop,
        Self::Restart,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Cut => "connection cut",
            Self::CutWithin => "cut within a message",
            Self::Stall => "responses stalled",
            Self::BlackHole => "black hole",
            Self::StreamsEnd => "streams ended",
            Self::Freeze => "server frozen",
            Self::Deaf => "server not reading",
            Self::Stop => "server down",
            Self::Restart => "server restarted",
        }
    }

    /// Injects the fault, and repairs it.
    async fn strike(self, site: &Site, time: Duration, bytes: u64) {
        let (proxy, control_plane) = (&site.proxy, &site.control_plane);
        match self {
            Self::Cut => proxy.cut(),
            Self::CutWithin => {
                proxy.cut_after(bytes);
                sleep(time).await;
                proxy.cancel_cut();
            }
            Self::Stall => {
                proxy.stall(Direction::ToClient);
                sleep(time).await;
                proxy.resume(Direction::ToClient);
            }
            Self::BlackHole => {
                BOTH.into_iter().for_each(|direction| proxy.stall(direction));
                sleep(time).await;
                BOTH.into_iter().for_each(|direction| proxy.resume(direction));
            }
            Self::StreamsEnd => drop(control_plane.disconnect(Status::unavailable("soaked"))),
            Self::Freeze => {
                control_plane.set_held(Held::all());
                sleep(time).await;
                control_plane.set_held(Held::none());
            }
            Self::Deaf => {
                control_plane.set_reading(false);
                sleep(time).await;
                control_plane.set_reading(true);
            }
            Self::Stop => {
                site.stop().await;
                sleep(time).await;
                site.serve().await;
            }
            Self::Restart => {
                site.stop().await;
                site.serve().await;
            }
        }
    }
}

const BOTH: [Direction; 2] = [Direction::ToClient, Direction::ToServer];
