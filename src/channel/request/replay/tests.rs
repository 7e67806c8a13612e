use bytes::Bytes;
use http::HeaderMap;

use super::*;

impl Replay {
    /// The memory that is used, by the capacities of all that is there.
    fn memory(&self) -> usize {
        let Kept::Several(parts) = &self.kept else { return 0 };
        // While a list grows, it is there twice: with half of its places and with all of them.
        let places = parts.complete.capacity();
        let places = if places > FIRST_LIST { places * 3 / 2 } else { places };
        let list = places * size_of::<Part>();
        let contents = parts.complete.iter().map(|part| part.size() + COUNT).sum::<usize>();
        list + contents + parts.open.capacity()
    }

    fn replayed(&mut self) -> Vec<u8> {
        self.rewind();
        let mut all = Vec::new();
        while let Some(part) = self.next_part() {
            match part {
                Part::Data(data) => all.extend_from_slice(&data),
                Part::Trailers(_) | Part::End => all.push(b'.'),
            }
        }
        all
    }
}

fn data(number: usize, size: usize) -> Part {
    Part::Data(vec![u8::try_from(number % 251).unwrap(); size].into())
}

#[test]
fn ch6_16_the_retry_buffer_counts_the_memory_of_many_small_messages_and_not_their_bytes_alone() {
    let buffer = RetryBuffer::new(256 << 10, 16 << 20);
    let mut replays: Vec<_> = (0..60).map(|_| Replay::new(&buffer)).collect();
    let mut sent = Vec::new();
    for number in 0..43_000 {
        let part = data(number, 1);
        replays.iter_mut().for_each(|replay| replay.keep(&part));
        sent.push(u8::try_from(number % 251).unwrap());
    }
    let memory: usize = replays.iter().map(Replay::memory).sum();
    assert!(memory <= buffer.used(), "{memory} bytes, {} counted", buffer.used());
    // Beside the messages there is little.
    assert!(buffer.used() < 60 * 43_000 * 5 / 4, "{} counted", buffer.used());
    assert!(replays.iter_mut().all(|replay| replay.is_kept() && replay.replayed() == sent));
    drop(replays);
    assert_eq!(buffer.used(), 0);
}

#[test]
fn ch6_16_memory_and_count_stay_below_the_limit_for_messages_of_any_size() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..400 {
        let limit = random.usize(0..64 << 10);
        let buffer = RetryBuffer::new(limit, 1 << 20);
        let mut replay = Replay::new(&buffer);
        let most = [2, 100, 5_000, 20_000][round % 4];
        let (mut sent, mut count) = (Vec::new(), 0);
        while replay.is_kept() && count < 2_000 {
            let size = random.usize(1..most);
            replay.keep(&data(count, size));
            sent.extend(vec![u8::try_from(count % 251).unwrap(); size]);
            count += 1;
            let counted = buffer.used();
            assert!(counted <= limit && replay.memory() <= counted, "{counted} of {limit}");
            if replay.is_kept() && random.u8(..50) == 0 {
                assert_eq!(replay.replayed(), sent, "in round {round}");
            }
        }
        if !replay.is_kept() {
            assert_eq!((buffer.used(), replay.memory()), (0, 0), "what is not kept takes nothing");
        }
    }
}

#[test]
fn ch6_16_a_small_message_is_kept_without_the_large_buffer_that_it_is_a_section_of() {
    let buffer = RetryBuffer::new(256 << 10, 16 << 20);
    let mut replay = Replay::new(&buffer);
    let large = Bytes::from(vec![7; 1 << 20]);
    for at in 0..3 {
        replay.keep(&Part::Data(large.slice(at..at + 10)));
    }
    assert!(large.is_unique(), "the replay has copies");
    assert_eq!(replay.replayed(), [7; 30]);
    // One of 4 KiB or more is shared.
    replay.keep(&Part::Data(large.slice(..MERGED)));
    assert!(!large.is_unique());
}

#[test]
fn ch6_16_a_single_message_up_to_the_limit_is_shared_and_kept() {
    for (size, is_kept) in [(1_000, true), (1_001, false)] {
        let buffer = RetryBuffer::new(1_000, 1 << 20);
        let mut replay = Replay::new(&buffer);
        replay.keep(&data(1, size));
        assert_eq!((replay.is_kept(), buffer.used()), (is_kept, if is_kept { size } else { 0 }));
    }
}

#[test]
fn ch6_16_trailers_count_with_the_bookkeeping_of_each_header() {
    let buffer = RetryBuffer::new(1 << 20, 1 << 20);
    let mut replay = Replay::new(&buffer);
    let mut trailers = HeaderMap::new();
    for number in 0..100_u8 {
        trailers.append("x", http::HeaderValue::from(u16::from(number)));
    }
    replay.keep(&data(1, 3));
    replay.keep(&Part::Trailers(trailers.into()));
    assert!(buffer.used() > 100 * 150, "{}", buffer.used());
    assert_eq!(replay.replayed(), [1, 1, 1, b'.']);
}

/// The bytes of a count of references.
const COUNT: usize = 32;
/// The places of a list with one part.
const FIRST_LIST: usize = 4;
