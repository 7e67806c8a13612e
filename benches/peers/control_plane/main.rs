//! The configuration of the calls: `control-plane BACKEND...` serves the targets `xds:///one`, whose cluster has the first backend,
//! and `xds:///all`, whose cluster has all of them, until its standard input ends.

use std::{error::Error, io, thread};

use xdskit::{
    control_plane::ControlPlane,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let backends: Vec<_> = std::env::args().skip(1).collect();
    let control_plane = ControlPlane::new();
    control_plane.update(|tx| {
        for (name, count) in [("one", 1), ("all", backends.len())] {
            let routes = route_config(name).virtual_host(["*"], [route::prefix("").cluster(name)]);
            tx.set(listener(name).rds(name)).set(routes).set(cluster(name));
            tx.set(endpoints(name).locality("eu", "a", backends.iter().take(count).map(String::as_str)));
        }
    });
    let server = control_plane.serve("127.0.0.1:0").await?;
    println!(r#"{{"event":"listening","address":"{}"}}"#, server.addr());
    thread::spawn(|| {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        std::process::exit(0);
    });
    std::future::pending().await
}
