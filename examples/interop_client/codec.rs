//! A codec of protobuf messages, and the paths of the methods.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Sends messages of one type and receives messages of another one.
#[derive(Debug)]
pub(crate) struct Proto<E, D>(PhantomData<fn(E) -> D>);

impl<E, D> Proto<E, D> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + 'static, D: Message + Default + 'static> Codec for Proto<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::new()
    }

    fn decoder(&mut self) -> Self {
        Self::new()
    }
}

impl<E: Message, D> Encoder for Proto<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, message: E, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(into).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<E, D: Message + Default> Decoder for Proto<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        D::decode(from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
