//! Operations on a simulated world of several servers and authorities: whatever is done in it, the engine keeps to its
//! rules. See `xdskit`'s `engine::simulation`.

#![no_main]

use libfuzzer_sys::{
    arbitrary::{Arbitrary, Result, Unstructured},
    fuzz_target,
};
use xdskit::fuzzing::{Script, play};

fuzz_target!(|operations: Operations| {
    play(&operations.0);
});

#[derive(Debug)]
struct Operations(Script);

impl<'a> Arbitrary<'a> for Operations {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let seed = u.arbitrary()?;
        // A world in which more happens takes long.
        let length = u.len().min(LONGEST);
        Ok(Self(Script::of(seed, u.bytes(length)?)))
    }
}

/// Six bytes for an operation and a pause.
const LONGEST: usize = 6 * 200;
