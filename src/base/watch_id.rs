use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
};

/// A watch of an application: one name, or all names, of one type. Never used twice.
///
/// The ids of a client and of its engine come from two counters. The highest bit keeps them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WatchId(u64);

/// A map with a value for each watch.
///
/// Lookups by watch are a part of each publication; a keyed hash would protect from collisions that nobody can choose.
pub(crate) type ByWatch<T> = HashMap<WatchId, T, BuildHasherDefault<Numbered>>;

/// Hashes numbers that the client assigns one after the other, which nothing outside can choose: consecutive ones have
/// adjacent slots.
#[derive(Debug, Default)]
pub(crate) struct Numbered(u64);

impl Hasher for Numbered {
    // Ids are written by `write_u64`. This is for the contract of the trait alone.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Tables take the slot from the low bits, and distinguish those in one slot by the highest seven.
        self.0 = number ^ (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (0x7f << 57));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl WatchId {
    /// The watch of an application; numbers of applications are below 2⁶³.
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The watch of a part of the client itself.
    ///
    /// Its values go to the inbox of the engine, and those of other watches to the shell.
    pub(crate) fn internal(number: u64) -> Self {
        Self(number | INTERNAL)
    }

    pub(crate) fn is_internal(self) -> bool {
        self.0 & INTERNAL != 0
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.is_internal() { "internal-" } else { "" };
        write!(f, "{part}{}", self.0 & !INTERNAL)
    }
}

/// The mark of the engine's own watches.
const INTERNAL: u64 = 1 << 63;
