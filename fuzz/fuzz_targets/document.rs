//! Bytes as a file of resources, or as an answer over REST: a response is read, or there is a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use xdskit::fuzzing::{read_document, show_response};

fuzz_target!(|input: &[u8]| {
    let Some((format, document)) = input.split_first() else { return };
    let Some(response) = read_document(*format, document) else { return };
    let says_so = document.windows(9).any(|part| part == b"resources");
    assert!(!response.is_empty() || says_so, "nothing is never a response without resources");
    let Some(json) = show_response(&response) else { return };
    let again = read_document(JSON, json.as_bytes());
    // In binary there may be what JSON cannot say, such as fields that are not known. A response that is empty becomes `{}`, which is
    // refused, since it does not name resources.
    if format % 4 != BINARY && !response.is_empty() {
        assert_eq!(again, Some(response), "{json}");
    }
});

const BINARY: u8 = 0;
const JSON: u8 = 3;
