use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    super::frames::{DATA, HEADERS, RST_STREAM},
    *,
};

const END_STREAM: u8 = 1;
/// The type of frames that are ignored.
const UNASSIGNED: u8 = 0xff;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[tokio::test]
async fn ch15_8_late_frames_are_changed_though_the_reader_has_room_for_a_part_of_a_head_alone() {
    let written = [
        frame(DATA, 0, 1, b"abc"),
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        frame(DATA, 0, 1, b"late"),
        frame(DATA, 0, 3, b"other"),
        frame(DATA, 0, 1, b""),
        frame(HEADERS, END_STREAM, 1, b"late"),
        frame(HEADERS, END_STREAM, 3, b"other"),
    ];
    let expected = [
        frame(DATA, 0, 1, b"abc"),
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        frame(UNASSIGNED, 0, 1, b"late"),
        frame(DATA, 0, 3, b"other"),
        frame(UNASSIGNED, 0, 1, b""),
        frame(HEADERS, 0, 1, b"late"),
        frame(HEADERS, END_STREAM, 3, b"other"),
    ];
    let (written, expected) = (written.concat(), expected.concat());
    for room in 1..=written.len() {
        // The last head may be incomplete at the end of the connection.
        for end in [written.len(), written.len() - 11] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let peer = listener.local_addr().unwrap().into();
            let (mut socket, _) =
                Socket::connect(&peer, None).await.unwrap_or_else(|error| panic!("{error}"));
            let mut io = listener.accept().await.unwrap().0;
            io.write_all(&written[..end]).await.unwrap();
            drop(io);
            let (mut read, mut bytes) = (Vec::new(), vec![0; room]);
            while let count @ 1.. = socket.read(&mut bytes).await.unwrap() {
                read.extend_from_slice(&bytes[..count]);
            }
            assert_eq!(read, expected[..end], "room for {room} of {end} bytes");
        }
    }
}
