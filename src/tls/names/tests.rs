//! CH7.9 and CH7.18: names of certificates, and how errors show them.

use rcgen::{CustomExtension, DnType};

use super::*;
use crate::tls::fixture::{Ca, dns, email, ip, uri};

fn names(certificate: &[u8]) -> Vec<(SanType, String)> {
    let names = CertificateNames::of(certificate).unwrap();
    names.iter().map(|(san_type, name)| (san_type, name.to_owned())).collect()
}

#[test]
fn ch7_9_names_of_the_four_types_are_read_and_addresses_are_in_canonical_form() {
    let all = [
        dns("*.a.example"),
        uri("spiffe://a/b"),
        email("ops@a.example"),
        ip("10.0.0.1"),
        ip("2001:db8:0:0:0:0:0:1"),
    ];
    let expected = [
        (SanType::Dns, "*.a.example"),
        (SanType::Uri, "spiffe://a/b"),
        (SanType::Email, "ops@a.example"),
        (SanType::IpAddress, "10.0.0.1"),
        (SanType::IpAddress, "2001:db8::1"),
    ];
    assert_eq!(names(&Ca::new().issue(all).der), expected.map(|(of, name)| (of, name.to_owned())));
}

#[test]
fn ch7_9_the_common_name_of_the_subject_is_never_read() {
    let issued = Ca::new().issue_with([], |params| {
        params.distinguished_name.push(DnType::CommonName, "a.example");
    });
    assert_eq!(names(&issued.der), []);
}

#[test]
fn ch7_9_names_of_other_types_and_those_that_are_no_text_are_skipped() {
    // OtherName, text that is not ASCII, x400Address, an address of five bytes, a registered id, and one good name.
    let entries: [&[u8]; 6] = [
        &[0xa0, 0x07, 0x06, 0x01, 0x2a, 0xa0, 0x02, 0x05, 0x00],
        &[0x82, 0x02, 0xc3, 0xa4],
        &[0xa3, 0x00],
        &[0x87, 0x05, 1, 2, 3, 4, 5],
        &[0x88, 0x01, 0x2a],
        &[0x82, 0x01, b'a'],
    ];
    assert_eq!(names(&with_names(&entries.concat())), [(SanType::Dns, "a".to_owned())]);
}

#[test]
fn ch7_9_certificates_and_names_that_are_malformed_are_errors() {
    for malformed in [&[][..], &[0x30, 0x80], b"-----BEGIN", &[0x30, 0x03, 0x02, 0x01, 0x01]] {
        CertificateNames::of(malformed).unwrap_err();
    }
    let torn = with_names(&[0x82, 0x05, b'a']);
    assert!(CertificateNames::of(&torn).unwrap_err().starts_with("subject alternative names: "));
    let whole = Ca::new().issue([dns("a")]).der;
    for end in 0..whole.len() {
        CertificateNames::of(&whole[..end]).unwrap_err();
    }
}

#[test]
fn ch7_18_an_error_shows_types_and_some_names_and_nothing_that_breaks_lines() {
    let shown =
        |names: Vec<(SanType, String)>| CertificateNames { names, not_after: Duration::ZERO }.to_string();
    assert_eq!(shown(vec![]), "no names");
    let some = vec![(SanType::Dns, "a.example".to_owned()), (SanType::Uri, "x\ny".to_owned())];
    assert_eq!(shown(some), r#"DNS "a.example", URI "x\ny""#);
    let many: Vec<_> = (0..10).map(|at| (SanType::IpAddress, at.to_string())).collect();
    assert!(shown(many).ends_with(r#", IP "7" and 2 more"#));
    let long = shown(vec![(SanType::Email, "x".repeat(1000))]);
    assert_eq!(long, format!("email {:?}...", "x".repeat(256)));
}

/// A certificate whose subject alternative names are these bytes.
fn with_names(entries: &[u8]) -> Vec<u8> {
    let mut content = vec![0x30, u8::try_from(entries.len()).unwrap()];
    content.extend_from_slice(entries);
    let issued = Ca::new().issue_with([], |params| {
        params.custom_extensions.push(CustomExtension::from_oid_content(&[2, 5, 29, 17], content));
    });
    issued.der.to_vec()
}
