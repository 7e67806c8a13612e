//! A reader of the protobuf wire format that slices instead of decoding.
//!
//! The envelope of a response and the name of a resource suffice to find whether a resource has changed; both are
//! read here without allocating.

use std::{error::Error, fmt, ops::Range};

/// One field of a message: its number and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The number in the message.
    pub(crate) number: u32,
    /// The value, as it is encoded.
    pub(crate) value: Value<'a>,
    /// The position of the payload in the message.
    pub(crate) start: usize,
}

/// The payload of a [`Field`] by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Value<'a> {
    /// A number of variable length.
    Varint(u64),
    /// A number of eight bytes.
    Fixed64(u64),
    /// A number of four bytes.
    Fixed32(u32),
    /// A text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// A deprecated encoding, which no message of the protocol uses.
    Group,
}

/// The position at which bytes are not a protobuf message, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The position in the message.
    pub(crate) offset: usize,
    /// What is wrong there.
    pub(crate) what: &'static str,
}

/// Iterates over the fields of a message; ends after the first error.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    /// The whole message.
    bytes: &'a [u8],
    /// The position of the next field.
    at: usize,
}

impl<'a> Fields<'a> {
    /// The fields of a message.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads a number of variable length.
    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let (value, at) = match self.bytes.get(self.at) {
            // The common case.
            Some(&byte) if byte < 0x80 => (byte.into(), self.at + 1),
            Some(_) | None => long_varint(self.bytes, self.at)?,
        };
        self.at = at;
        Ok(value)
    }

    /// Takes so many bytes.
    #[inline(always)]
    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return Err(self.malformed("length over the end of the message"));
        };
        self.at += taken.len();
        Ok(taken)
    }

    /// Reads the number and the wire type of the next field.
    #[inline(always)]
    fn key(&mut self) -> Result<(u32, u64), Malformed> {
        let key = self.varint()?;
        match u32::try_from(key >> 3) {
            Ok(number) if (1..1 << 29).contains(&number) => Ok((number, key & 7)),
            _ => Err(self.malformed("field number out of range")),
        }
    }

    /// Reads a field.
    #[inline(always)]
    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let (number, wire_type) = self.key()?;
        if wire_type == 2 {
            let length = self.varint()?;
            let start = self.at;
            return Ok(Field { number, value: Value::Bytes(self.take(length)?), start });
        }
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            3 => {
                let mut group = self.clone();
                group.skip_group(number)?;
                self.at = group.at;
                Value::Group
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
            4 => return Err(self.malformed("end of a group that was not begun")),
            _ => return Err(self.malformed("unknown wire type")),
        };
        Ok(Field { number, value, start: self.at })
    }

    /// Skips the rest of a group, including nested groups.
    #[cold]
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(innermost) = open.last() {
            match self.key()? {
                (number, 4) if number == *innermost => drop(open.pop()),
                (_, 4) => return Err(self.malformed("end of another group")),
                _ if open.len() >= MAX_GROUPS => {
                    return Err(self.malformed("groups are nested too deep"));
                }
                (number, 3) => open.push(number),
                (_, 0) => drop(self.varint()?),
                (_, 1) => drop(self.take(8)?),
                (_, 2) => {
                    let length = self.varint()?;
                    self.take(length)?;
                }
                (_, 5) => drop(self.take(4)?),
                _ => return Err(self.malformed("unknown wire type")),
            }
        }
        Ok(())
    }

    /// Reads a number of a fixed length.
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N as u64)?;
        let mut fixed = [0; N];
        fixed.copy_from_slice(taken);
        Ok(fixed)
    }

    /// An error at the position.
    fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { offset: self.at, what }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    /// The payload of a length-delimited field.
    #[inline]
    pub(crate) fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) | Value::Group => {
                Err(self.malformed("a length-delimited field has another wire type"))
            }
        }
    }

    /// The payload of a length-delimited field as text.
    #[inline]
    pub(crate) fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.malformed("text is not UTF-8"))
    }

    /// The payload of an integer, boolean or enum field.
    #[inline]
    pub(crate) fn varint(&self) -> Result<u64, Malformed> {
        match self.value {
            Value::Varint(value) => Ok(value),
            Value::Bytes(_) | Value::Fixed64(_) | Value::Fixed32(_) | Value::Group => {
                Err(self.malformed("a varint field has another wire type"))
            }
        }
    }

    /// Stores the payload of a message that occurs at most once in `slot`. A second one is an error here: in
    /// protobuf, both would be parts of one message.
    #[inline]
    pub(crate) fn once(&self, slot: &mut Option<&'a [u8]>) -> Result<(), Malformed> {
        match slot.replace(self.bytes()?) {
            None => Ok(()),
            Some(_) => Err(self.again()),
        }
    }

    /// The error of a repeated occurrence of a field.
    #[cold]
    pub(crate) fn again(&self) -> Malformed {
        self.malformed("a message is written in two parts")
    }

    #[cold]
    fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { offset: self.start, what }
    }

    /// The range of the payload of a length-delimited field in the message.
    pub(crate) fn range(&self) -> Result<Range<usize>, Malformed> {
        Ok(self.start..self.start + self.bytes()?.len())
    }
}

/// Reads a varint of any length; also returns its end.
fn long_varint(bytes: &[u8], start: usize) -> Result<(u64, usize), Malformed> {
    let mut value = 0u64;
    for (shift, at) in (0..64).step_by(7).zip(start..) {
        let Some(&byte) = bytes.get(at) else {
            return Err(Malformed { offset: at, what: "truncated varint" });
        };
        if shift == 63 && byte > 1 {
            return Err(Malformed { offset: at + 1, what: "varint over 64 bits" });
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(Malformed { offset: start, what: "varint over 64 bits" })
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}

impl Error for Malformed {}

/// Returns the last occurrence of the string field `number`, as a decoder does; empty if there is none.
pub(crate) fn string_field(bytes: &[u8], number: u32) -> Result<&str, Malformed> {
    let mut found = "";
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number == number {
            found = field.text()?;
        }
    }
    Ok(found)
}

/// The maximum nesting of groups, as in the decoder of whole messages.
const MAX_GROUPS: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::pb::google::rpc::Status;

    #[test]
    fn the_last_occurrence_of_a_string_wins() {
        let mut bytes = Status { message: "a".into(), ..Default::default() }.encode_to_vec();
        bytes.extend(Status { code: 3, message: "b".into(), details: Vec::new() }.encode_to_vec());
        assert_eq!(string_field(&bytes, 2), Ok("b"));
        assert_eq!(string_field(&bytes, 9), Ok(""));
    }

    #[test]
    fn errors_have_an_offset() {
        assert_eq!(
            string_field(&[0x0a, 5, b'x'], 1).unwrap_err().to_string(),
            "length over the end of the message at byte 2"
        );
        assert_eq!(string_field(&[0x08, 0xff], 1).unwrap_err().what, "truncated varint");
        assert_eq!(
            string_field(&[0x08, 1], 1).unwrap_err().what,
            "a length-delimited field has another wire type"
        );
        assert_eq!(string_field(&[0x0a, 1, 0xff], 1).unwrap_err().what, "text is not UTF-8");
        assert_eq!(string_field(&[0x00, 1], 1).unwrap_err().what, "field number out of range");
        assert_eq!(string_field(&[0x0c], 2).unwrap_err().what, "end of a group that was not begun");
        assert_eq!(string_field(&[0x0b, 0x14], 2).unwrap_err().what, "end of another group");
        assert_eq!(string_field(&[0x0b, 0x0c], 1).unwrap_err().offset, 2);
    }

    #[test]
    fn groups_are_skipped_as_the_decoder_skips_them() {
        // A varint, 8 bytes, a text, a group, and 4 bytes.
        let group = [
            &[0x23, 0x08, 9, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x12, 1, b'x'][..],
            &[0x2b, 0x2c, 0x2d, 1, 2, 3, 4, 0x24],
        ];
        let message = Status { message: "a".into(), ..Default::default() }.encode_to_vec();
        let bytes = [&group.concat()[..], &message].concat();
        assert_eq!(string_field(&bytes, 2), Ok("a"));
        assert_eq!(Status::decode(&bytes[..]).unwrap().message, "a");
        for depth in [99, 100, 101] {
            for inside in [&[][..], &[0x08, 9]] {
                let bytes = [&[0x23].repeat(depth), inside, &[0x24].repeat(depth)].concat();
                assert_eq!(string_field(&bytes, 2).is_ok(), Status::decode(&bytes[..]).is_ok(), "{depth}");
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(text) = string_field(&bytes, 2) && let Ok(status) = Status::decode(&bytes[..]) {
                prop_assert_eq!(status.message, text);
            }
        }

        #[test]
        fn agrees_with_the_decoder_about_what_is_skipped(bytes in proptest::collection::vec(0x20u8..0x30, 0..12)) {
            prop_assert_eq!(string_field(&bytes, 2).is_ok(), Status::decode(&bytes[..]).is_ok(), "{:x?}", bytes);
        }

        #[test]
        fn finds_what_the_encoder_wrote(code: i32, message: String) {
            let bytes = Status { code, message: message.clone(), details: Vec::new() }.encode_to_vec();
            prop_assert_eq!(string_field(&bytes, 2), Ok(&*message));
        }
    }
}
