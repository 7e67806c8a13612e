//! The frames of HTTP/2, as a peer of the tests reads and writes them.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Bytes,
}

/// The header block of a response: literals without index, so that there is no state.
#[derive(Debug, Default)]
pub(super) struct HeaderBlock(BytesMut);

impl Frame {
    /// Takes the next frame out of what was read, if it is complete.
    pub(super) fn take(unread: &mut BytesMut) -> Option<Self> {
        let head = unread.get(..HEAD)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if unread.len() < HEAD + length {
            return None;
        }
        let mut frame = unread.split_to(HEAD + length).freeze();
        let (kind, flags) = (frame[3], frame[4]);
        frame.advance(5);
        let stream = frame.get_u32() & (u32::MAX >> 1);
        Some(Self { kind, flags, stream, payload: frame })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number that a payload begins with, without its highest bit.
    pub(super) fn number(&self) -> u32 {
        self.payload.get(..4).map_or(0, |mut bytes| bytes.get_u32()) & (u32::MAX >> 1)
    }
}

impl HeaderBlock {
    /// With the status 200 and the content type of gRPC.
    pub(super) fn response() -> Self {
        let mut block = Self(BytesMut::new());
        // `:status: 200` is entry 8 of the static table.
        block.0.put_u8(0x88);
        block.add(b"content-type", b"application/grpc");
        block
    }

    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.0.put_u8(0);
        self.put_text(name);
        self.put_text(value);
    }

    /// Adds metadata of so many bytes.
    pub(super) fn add_padding(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let length = left.min(4_000);
            self.add(b"x-padding", &vec![b'x'; length]);
            left -= length;
        }
    }

    /// A text that is not Huffman-coded, after its length: an integer with a prefix of 7 bits.
    fn put_text(&mut self, text: &[u8]) {
        let mut length = text.len();
        if length < 127 {
            self.0.put_u8(length as u8);
        } else {
            self.0.put_u8(127);
            length -= 127;
            while length >= 128 {
                self.0.put_u8(length as u8 | 0x80);
                length /= 128;
            }
            self.0.put_u8(length as u8);
        }
        self.0.put_slice(text);
    }

    /// Writes HEADERS, with as many CONTINUATIONs as the length of frames requires.
    pub(super) fn write(self, stream: u32, is_end: bool, out: &mut BytesMut) {
        let mut rest = self.0.freeze();
        let (mut kind, mut flags) = (HEADERS, if is_end { END_STREAM } else { 0 });
        loop {
            let part = rest.split_to(rest.len().min(MAX_FRAME));
            let end = if rest.is_empty() { END_HEADERS } else { 0 };
            write(out, kind, flags | end, stream, &part);
            if rest.is_empty() {
                return;
            }
            (kind, flags) = (CONTINUATION, 0);
        }
    }
}

/// Writes a frame.
pub(super) fn write(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    head(out, kind, flags, stream, payload.len());
    out.put_slice(payload);
}

/// Writes a DATA frame of zeros, which are empty messages in gRPC.
pub(super) fn write_zeros(out: &mut BytesMut, stream: u32, length: usize) {
    head(out, DATA, 0, stream, length);
    out.put_bytes(0, length);
}

/// Writes a frame that has a number as its payload.
pub(super) fn write_number(out: &mut BytesMut, kind: u8, stream: u32, number: u32) {
    write(out, kind, 0, stream, &number.to_be_bytes());
}

/// Writes GOAWAY.
pub(super) fn write_go_away(out: &mut BytesMut, last: u32, code: u32, debug: &[u8]) {
    let mut payload = BytesMut::with_capacity(8 + debug.len());
    payload.put_u32(last);
    payload.put_u32(code);
    payload.put_slice(debug);
    write(out, GOAWAY, 0, 0, &payload);
}

/// Writes SETTINGS.
pub(super) fn write_settings(out: &mut BytesMut, settings: &[Setting]) {
    let mut payload = BytesMut::with_capacity(6 * settings.len());
    for setting in settings {
        payload.put_u16(setting.id);
        payload.put_u32(setting.value);
    }
    write(out, SETTINGS, 0, 0, &payload);
}

/// A parameter of SETTINGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) id: u16,
    pub(super) value: u32,
}

/// Reads the parameters of SETTINGS.
pub(super) fn settings(mut payload: Bytes) -> impl Iterator<Item = Setting> {
    std::iter::from_fn(move || {
        (payload.remaining() >= 6).then(|| Setting { id: payload.get_u16(), value: payload.get_u32() })
    })
}

fn head(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, length: usize) {
    out.put_uint(length as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
}

const HEAD: usize = 9;
/// The longest frame that may be sent without a SETTINGS of the other side.
pub(super) const MAX_FRAME: usize = 16 << 10;
pub(super) const PREFACE: usize = 24;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

pub(super) const NO_ERROR: u32 = 0;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;
