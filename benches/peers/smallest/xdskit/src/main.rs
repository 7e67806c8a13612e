//! A call by the bootstrap in `GRPC_XDS_BOOTSTRAP`.

#[path = "../../call.rs"]
mod call;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    call::call(xdskit::Channel::builder("xds:///shop").build()?).await
}
