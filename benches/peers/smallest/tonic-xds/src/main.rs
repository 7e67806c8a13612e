//! A call by the bootstrap in `GRPC_XDS_BOOTSTRAP`.

use tonic_xds::{XdsChannelBuilder, XdsChannelConfig, XdsUri};

#[path = "../../call.rs"]
mod call;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = XdsChannelConfig::new(XdsUri::parse("xds:///shop")?);
    call::call(XdsChannelBuilder::new(config).build_grpc_channel()?).await
}
