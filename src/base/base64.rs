//! Base64 as in protobuf's JSON.

use base64::{
    DecodeError, Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Decodes base64 of either alphabet, with or without padding, as parsers of protobuf's JSON do.
pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    // The alphabets differ in two characters, so that a text without these is of both.
    let url_safe = text.contains(['-', '_']);
    let alphabet = if url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config).decode(text)
}
