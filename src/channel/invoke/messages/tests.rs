use super::*;

/// A message of bytes.
struct Raw(Bytes);

impl SendMessage for Raw {
    fn encode(&self) -> Result<Box<dyn Buf + Send + Sync>, String> {
        Ok(Box::new(self.0.clone()))
    }
}

/// The parts of a body with messages of these lengths, as they are sent.
fn parts(lengths: &[usize]) -> Vec<Bytes> {
    let mut parts = Vec::new();
    for length in lengths {
        let mut rest = Some(encode(&Raw(Bytes::from(vec![*length as u8; *length]))).unwrap());
        while let Some(encoded) = rest {
            let part;
            (part, rest) = encoded.split();
            parts.push(part);
        }
    }
    parts
}

/// The lengths of the messages in data that arrive in frames of this size.
fn received(data: &[u8], frame: usize) -> Vec<usize> {
    let mut messages = ReceivedMessages::new(1 << 20, None);
    let mut lengths = Vec::new();
    for frame in data.chunks(frame) {
        messages.push(Bytes::copy_from_slice(frame));
        let decode = |lengths: &mut Vec<usize>, data: &mut dyn Buf| {
            let length = data.remaining();
            let message = data.copy_to_bytes(length);
            assert!(message.iter().all(|byte| *byte == length as u8), "a message of {length} bytes");
            lengths.push(length);
            Ok(())
        };
        while messages.decode_next(|data| decode(&mut lengths, data)).unwrap() {}
    }
    assert!(!messages.is_incomplete());
    lengths
}

#[test]
fn messages_are_read_however_the_body_is_cut_into_frames() {
    let lengths = [0, 1, 300, 0, COPIED, COPIED + 1, 70_000, 5];
    let body = parts(&lengths).concat();
    for frame in [1, 2, 5, 6, 7, 1_000, MERGED - 1, MERGED, 16_384, body.len()] {
        assert_eq!(received(&body, frame), lengths, "frames of {frame} bytes");
    }
}

#[test]
fn a_small_message_is_one_part_and_a_large_one_is_not_copied() {
    assert_eq!(parts(&[COPIED]).len(), 1);
    let message = Bytes::from(vec![7; COPIED + 1]);
    let (prefix, rest) = encode(&Raw(message.clone())).unwrap().split();
    assert_eq!(prefix[..], [0, 0, 0, 16, 1]);
    let (sent, rest) = rest.unwrap().split();
    assert_eq!((sent.as_ptr(), sent.len(), rest.is_none()), (message.as_ptr(), message.len(), true));
}

#[test]
fn a_message_in_one_frame_is_received_without_a_copy() {
    let data = Bytes::from(parts(&[100, 200]).concat());
    let mut messages = ReceivedMessages::new(1_000, None);
    messages.push(data.clone());
    let mut starts = Vec::new();
    let mut decode = |data: &mut dyn Buf| {
        let length = data.remaining();
        starts.push(data.copy_to_bytes(length).as_ptr());
        Ok(())
    };
    while messages.decode_next(&mut decode).unwrap() {}
    assert_eq!(starts, [data[PREFIX..].as_ptr(), data[PREFIX + 100 + PREFIX..].as_ptr()]);
}

#[test]
fn a_decoder_may_leave_bytes_unread() {
    let mut messages = ReceivedMessages::new(1_000, None);
    let mut decoded = Vec::new();
    messages.push(Bytes::from(parts(&[100, 200]).concat()));
    let mut decode = |data: &mut dyn Buf| {
        decoded.push(data.get_u8());
        Ok(())
    };
    while messages.decode_next(&mut decode).unwrap() {}
    assert_eq!(decoded, [100, 200]);
}

#[test]
fn ch17_5_a_message_above_the_limit_is_refused_by_its_prefix() {
    let mut messages = ReceivedMessages::new(100, None);
    messages.push(Bytes::from(parts(&[100]).concat()));
    assert!(messages.decode_next(|_| Ok(())).unwrap());
    messages.push(Bytes::from_static(&[0, 0, 0, 0, 101]));
    let status = messages.decode_next(|_| Ok(())).unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(status.message(), "the response has a message of 101 bytes, max_receive_message_size is 100");
}

#[test]
fn ch17_5_a_compressed_message_and_one_that_cannot_be_decoded_are_refused() {
    let mut messages = ReceivedMessages::new(100, Some(HeaderValue::from_static("gzip")));
    // A message of this response may be uncompressed nevertheless.
    messages.push(Bytes::from_static(&[0, 0, 0, 0, 1, 9]));
    assert!(messages.decode_next(|_| Ok(())).unwrap());
    messages.push(Bytes::from_static(&[1, 0, 0, 0, 1, 9]));
    let status = messages.decode_next(|_| Ok(())).unwrap_err();
    let message = "the response has a compressed message (flag 1, grpc-encoding \"gzip\"), which the request did not accept";
    assert_eq!((status.code(), status.message()), (tonic::Code::Internal, message));

    let mut messages = ReceivedMessages::new(100, None);
    messages.push(Bytes::from_static(&[0, 0, 0, 0, 1, 9]));
    let status = messages.decode_next(|_| Err("no text".into())).unwrap_err();
    let message = "the message of 1 bytes cannot be decoded: no text";
    assert_eq!((status.code(), status.message()), (tonic::Code::Internal, message));
}

#[test]
fn a_message_in_many_small_frames_takes_little_memory_beside_its_bytes() {
    let mut messages = ReceivedMessages::new(1 << 20, None);
    messages.push(Bytes::from_static(&[0, 0, 1, 0, 0]));
    for _ in 0..1 << 16 {
        // Each frame keeps a buffer of 1 KiB, of which it is one byte.
        messages.push(Bytes::from(vec![0; 1 << 10]).split_to(1));
        assert!(messages.buffer.more.is_empty() && messages.buffer.merged.capacity() <= 2 << 16);
    }
    assert!(
        messages
            .decode_next(|data| if data.remaining() == 1 << 16 { Ok(()) } else { Err(String::new()) })
            .unwrap()
    );
}
