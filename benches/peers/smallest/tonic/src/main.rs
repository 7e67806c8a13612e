//! A call to a fixed address.

use tonic::transport::Endpoint;

#[path = "../../call.rs"]
mod call;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    call::call(Endpoint::from_static("http://127.0.0.1:50051").connect_lazy()).await
}
