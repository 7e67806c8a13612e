/// Where a world's decisions come from.
#[derive(Debug)]
pub(super) enum Choices<'a> {
    /// A seed, for any number of operations.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests have seeds"))]
    Seed { random: fastrand::Rng, operations: usize },
    /// The bytes of a fuzzer, for as many operations as they last.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// Whether there is another operation.
    pub(super) fn next_operation(&mut self) -> bool {
        match self {
            Self::Seed { operations, .. } => {
                let more = *operations > 0;
                *operations = operations.saturating_sub(1);
                more
            }
            Self::Bytes(bytes) => !bytes.is_empty(),
        }
    }

    /// A number below the limit, which is 1 to 256; 0 once the bytes are used up.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        match self {
            Self::Seed { random, .. } => random.usize(..limit),
            Self::Bytes(bytes) => match bytes.split_first() {
                Some((first, rest)) => {
                    *bytes = rest;
                    usize::from(*first) % limit
                }
                None => 0,
            },
        }
    }

    pub(super) fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    /// One of some values, if there are any.
    pub(super) fn one_of<T: Clone>(&mut self, values: impl IntoIterator<Item = T>) -> Option<T> {
        let values: Vec<_> = values.into_iter().take(256).collect();
        if values.is_empty() { None } else { values.get(self.below(values.len())).cloned() }
    }
}
