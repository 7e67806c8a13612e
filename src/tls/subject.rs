//! The subject of a certificate as text (RFC 2253), which authorization policies compare.

use std::fmt::Write as _;

use x509_cert::{
    attr::AttributeTypeAndValue,
    certificate::{CertificateInner, Raw},
    der::{Decode, Encode, Tag, Tagged, asn1::AnyRef},
};

/// Returns the subject of a certificate in DER: the most specific name first, `CN=shop,O=Example`.
pub(super) fn subject(certificate: &[u8]) -> Result<String, String> {
    let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|e| e.to_string())?;
    let mut text = String::new();
    let names: Vec<_> = parsed.tbs_certificate().subject().iter_rdn().collect();
    for (at, name) in names.iter().rev().enumerate() {
        for (part, attribute) in name.iter().enumerate() {
            text.push_str(match (at, part) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            write_attribute(&mut text, attribute);
        }
    }
    Ok(text)
}

/// Writes an attribute with the name of its type; one of another type as bytes (RFC 2253, section 2.3 and 2.4).
fn write_attribute(text: &mut String, attribute: &AttributeTypeAndValue) {
    let oid = attribute.oid.to_string();
    let known = TYPES.iter().find(|(known, _)| *known == oid);
    let value = AnyRef::from(&attribute.value);
    if let Some(((_, name), value)) = known.zip(text_of(value)) {
        text.push_str(name);
        text.push('=');
        write_escaped(text, &value);
        return;
    }
    let _ = write!(text, "{oid}=#");
    for byte in value.to_der().unwrap_or_default() {
        let _ = write!(text, "{byte:02x}");
    }
}

/// Returns the text of a value; `None` if it is no text.
#[allow(clippy::wildcard_enum_match_arm, reason = "other types are no text")]
fn text_of(value: AnyRef<'_>) -> Option<String> {
    let bytes = value.value();
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            str::from_utf8(bytes).ok().map(str::to_owned)
        }
        // Read as Latin-1, as most do.
        Tag::TeletexString => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let units: Vec<_> =
                bytes.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// Writes a value with what has a meaning escaped.
fn write_escaped(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        let is_special = matches!(char, ',' | '+' | '"' | '\\' | '<' | '>' | ';')
            || (char == '#' && at == 0)
            || (char == ' ' && (at == 0 || at == last));
        if is_special {
            text.push('\\');
        }
        text.push(char);
    }
}

/// The types with a name in RFC 2253.
const TYPES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    use super::*;

    fn of(names: impl IntoIterator<Item = (DnType, DnValue)>) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (name, value) in names {
            params.distinguished_name.push(name, value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        subject(certificate.der()).unwrap()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn a_subject_has_its_most_specific_name_first_and_is_escaped() {
        assert_eq!(of([]), "");
        let names = [
            (DnType::CountryName, DnValue::PrintableString("DE".try_into().unwrap())),
            (DnType::OrganizationName, utf8("Müller, Söhne")),
            (DnType::CommonName, utf8("shop")),
        ];
        assert_eq!(of(names), "CN=shop,O=Müller\\, Söhne,C=DE");
        let common_name = |text| of([(DnType::CommonName, utf8(text))]);
        assert_eq!(common_name(" #a+\"\\<>;# "), "CN=\\ #a\\+\\\"\\\\\\<\\>\\;#\\ ");
        assert_eq!(common_name("#a"), "CN=\\#a");
        assert_eq!(common_name(" "), "CN=\\ ");
    }

    #[test]
    fn types_without_a_name_are_shown_as_numbers() {
        let serial_number = DnType::CustomDnType(vec![2, 5, 4, 5]);
        let value = DnValue::PrintableString("a1".try_into().unwrap());
        assert_eq!(of([(serial_number, value)]), "2.5.4.5=#13026131");
    }
}
