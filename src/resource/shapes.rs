//! Messages in encodings that no encoder produces but every decoder accepts: fields in any order, repeated scalars,
//! messages in parts, and unknown fields among them.

use bytes::Bytes;
use proptest::{prelude::*, sample::select};
use prost::Message;

use super::{Context, Invalid, Resource};

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// A number, one of these.
    Number(&'static [u64]),
    /// A text, one of these.
    Text(&'static [&'static str]),
    /// A message with these fields.
    Message(&'static [Field]),
}

/// A field: its number, its weight in the random choice, and its content.
pub(super) type Field = (u32, u32, Shape);

/// Bytes of a message with some of these fields.
pub(super) fn message(fields: &'static [Field]) -> BoxedStrategy<Vec<u8>> {
    let known = fields.iter().map(|(number, weight, shape)| (*weight, field(*number, *shape)));
    let all: Vec<_> = known.chain([(1, strange(fields))]).collect();
    let some = prop::collection::vec(prop::strategy::Union::new_weighted(all), 0..=fields.len() + 2);
    some.prop_map(|fields| fields.concat()).boxed()
}

/// A field with its key, and random content of its shape.
fn field(number: u32, shape: Shape) -> BoxedStrategy<Vec<u8>> {
    let key = move |wire_type| varint(u64::from(number << 3 | wire_type));
    match shape {
        Shape::Number(values) => select(values).prop_map(move |n| [key(0), varint(n)].concat()).boxed(),
        Shape::Text(texts) => {
            select(texts).prop_map(move |t| [key(2), delimited(t.as_bytes())].concat()).boxed()
        }
        Shape::Message(fields) => {
            message(fields).prop_map(move |bytes| [key(2), delimited(&bytes)].concat()).boxed()
        }
    }
}

/// An unknown field of any wire type; sometimes a known field with a wrong wire type, or bytes that are not a field.
fn strange(fields: &'static [Field]) -> BoxedStrategy<Vec<u8>> {
    let known = fields.iter().map(|(number, ..)| *number);
    let numbers: Vec<_> = known.chain([1000; 60]).collect();
    let end = prop_oneof![30 => Just(4), 1 => Just(3)];
    (select(numbers), 0..6u32, end)
        .prop_map(|(number, wire_type, end)| {
            let key = move |wire_type| varint(u64::from(number << 3 | wire_type));
            let value = match wire_type {
                0 => varint(1 << 40),
                1 => vec![1; 8],
                2 => delimited(b"\xff"),
                3 => [key(0), vec![1], key(end)].concat(),
                4 if number < 1000 => vec![],
                4 => return vec![],
                _ => vec![1; 4],
            };
            [key(wire_type), value].concat()
        })
        .boxed()
}

fn delimited(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u64), bytes].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Checks that bytes are parsed like the message `M` that a decoder reads from them: to the same value, or the same
/// rejection. Remarks are of the bytes, which may have fields that the message lacks.
pub(super) fn is_read_as_decoded<T, M>(
    bytes: Vec<u8>,
    cx: &Context<'_>,
    without_remarks: fn(T) -> T,
) -> Result<Result<T, Invalid>, TestCaseError>
where
    T: Resource + PartialEq + Clone,
    M: Message + Default,
{
    let bytes = Bytes::from(bytes);
    let parse = |bytes: &Bytes| T::parse(bytes, cx).map(without_remarks);
    let parsed = parse(&bytes);
    match M::decode(bytes) {
        Ok(message) => prop_assert_eq!(&parsed, &parse(&message.encode_to_vec().into())),
        Err(e) => prop_assert_eq!(&parsed, &Err(Invalid::from(e))),
    }
    Ok(parsed)
}
