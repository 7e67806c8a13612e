//! A resource type of an application: its message is served by a control plane, watched by a client, and rejected if it is malformed.
//!
//! ```console
//! $ cargo run --example own_type
//! ```
//!
//! Control plane and client run in this process, on loopback. The program ends by itself; its exit code is 1 if an update does not
//! arrive. `docs/RESOURCE_TYPES.md` describes own types.

use std::{error::Error, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Bootstrap, Client, Observed,
    control_plane::AnyResource,
    resource::{Prost, Resource},
    testing::TestControlPlane,
};

/// A text for the head of a page: `message Banner { string name = 1; string text = 2; }` in the package `shop`.
#[derive(Clone, PartialEq, prost::Message)]
struct Banner {
    /// The name of the resource.
    #[prost(string, tag = "1")]
    name: String,
    /// The text that is shown.
    #[prost(string, tag = "2")]
    text: String,
}

/// The compiler of protobuf writes this with its setting `enable_type_names`.
impl prost::Name for Banner {
    const NAME: &'static str = "Banner";
    const PACKAGE: &'static str = "shop";
}

const TYPE_URL: &str = Prost::<Banner>::TYPE_URL;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = TestControlPlane::start().await;
    server.set(banner("sale", "20 % off"));

    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json())?).build()?;
    let mut sale = client.watch::<Prost<Banner>>("sale");
    println!("{TYPE_URL}: {}", timeout(BOUND, sale.ready()).await??.text);

    server.set(banner("sale", "30 % off"));
    let changed =
        |seen: &Observed<Prost<Banner>>| seen.resource().is_some_and(|sale| sale.text.starts_with("30"));
    timeout(BOUND, sale.wait_for(changed)).await?;
    println!("changed: {}", sale.ready().await?.text);

    // A number where the text belongs: the last good banner stays in use, and the server gets the reason.
    server.set(AnyResource::new(TYPE_URL, "sale", &b"\x0a\x04sale\x10\x07"[..]));
    let nack = server.expect_nack(TYPE_URL).await?;
    println!("rejected: {}", nack.message);
    println!("in use: {}", sale.ready().await?.text);
    Ok(())
}

fn banner(name: &str, text: &str) -> AnyResource {
    let message = Banner { name: name.to_owned(), text: text.to_owned() };
    AnyResource::encode(TYPE_URL, name, &message)
}

/// The limit of each wait.
const BOUND: Duration = Duration::from_secs(10);
