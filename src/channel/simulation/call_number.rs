//! The number of a call in the headers of its request, where a peer finds it without the state of header compression.

use http::HeaderValue;

/// The value of a header with the number of a call. It is sensitive: no table of HPACK ever has it (RFC 7541, section 6.2.3).
pub(super) fn value(number: u32) -> HeaderValue {
    let digits = format!("{number:08}");
    let symbols: Vec<u8> = digits.bytes().map(|digit| SYMBOLS[usize::from(digit - b'0')]).collect();
    let mut value = HeaderValue::from_bytes(&symbols).expect("letters and digits");
    value.set_sensitive(true);
    value
}

/// The number in a header block, if the block has one.
pub(super) fn read(block: &[u8]) -> Option<u32> {
    let value = <[u8; 5]>::try_from(never_indexed(block)?).ok()?;
    let bits = value.into_iter().fold(0, |bits, byte| bits << 8 | u64::from(byte));
    (1..=DIGITS).try_fold(0, |number, place| {
        let digit = (bits >> (SYMBOL_BITS * (DIGITS - place))) as u32 % (1 << SYMBOL_BITS);
        (digit < 10).then(|| 10 * number + digit)
    })
}

/// The value of the first literal that is never indexed.
fn never_indexed(mut block: &[u8]) -> Option<&[u8]> {
    loop {
        let first = *block.first()?;
        let (prefix, is_literal) = match first.leading_zeros() {
            0 => (7, false),
            1 => (6, true),
            2 => (5, false),
            _ => (4, true),
        };
        let name = integer(&mut block, prefix)?;
        if !is_literal {
            continue;
        }
        if name == 0 {
            text(&mut block)?;
        }
        let value = text(&mut block)?;
        if first >> 4 == NEVER_INDEXED {
            return Some(value);
        }
    }
}

/// A text as it is coded, after its length.
fn text<'a>(block: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = integer(block, 7)?;
    block.split_off(..length)
}

/// An integer with a prefix of so many bits (RFC 7541, section 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let most = (1 << prefix) - 1;
    let mut number = usize::from(*block.split_off_first()?) & most;
    if number < most {
        return Some(number);
    }
    for shift in [0, 7, 14] {
        let next = usize::from(*block.split_off_first()?);
        number += (next & 127) << shift;
        if next < 128 {
            return Some(number);
        }
    }
    None
}

/// What stands for the digits: the symbols whose Huffman codes are the numbers from 0 to 9, in 5 bits (RFC 7541, appendix B).
const SYMBOLS: &[u8; 10] = b"012aceiost";
const SYMBOL_BITS: u32 = 5;
/// So many symbols fill bytes.
const DIGITS: u32 = 8;
/// The first bits of a literal that is never indexed.
const NEVER_INDEXED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_call_is_found_between_other_headers() {
        // An indexed field, a literal that is indexed, one that is not, the number 20,417,399, and another indexed field.
        let block = [
            &[0x83, 0x41, 2, b'a', b'b', 0x40, 1, b'x', 1, b'y', 0x00, 1, b'n', 1, b'v'][..],
            &[0x10, 1, b'c', 0x85, 0x10, 0x08, 0x13, 0x8d, 0x29],
            &[0x84],
        ];
        assert_eq!(read(&block.concat()), Some(20_417_399));
        assert_eq!(read(block[0]), None);
        assert_eq!(value(20_417_399), "20c1oatt");
    }
}
