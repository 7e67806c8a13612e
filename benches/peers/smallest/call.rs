//! A unary call with a message of bytes, by tonic's client.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Makes one call and prints the length of its response.
pub(crate) async fn call<T>(channel: T) -> Result<(), Box<dyn std::error::Error>>
where
    T: GrpcService<Body>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.into().to_string()))?;
    let path = PathAndQuery::from_static("/shop.Cart/Add");
    let response = client.unary(Request::new(Bytes::from_static(b"apple")), path, Raw).await?;
    println!("answered: {} bytes", response.get_ref().len());
    Ok(())
}

/// A codec of messages that are bytes.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
