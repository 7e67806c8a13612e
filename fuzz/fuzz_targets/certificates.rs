//! What peers and files say of identities: certificates, their names, PEM, SPIFFE ids and bundles, and revocation lists. It is
//! read, or there is a reason; and names match as the plainest reading of the rules says.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use xdskit::{
    fuzzing::{
        accepts_name, read_certificate, read_names, read_pair, read_revocation_lists, read_trust_bundles,
        spiffe_domain,
    },
    resource::tls::SanType,
};

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 7 {
        0 => check_names(read_certificate(rest)),
        1 => check_names(read_names(rest)),
        2 => check_pair(rest),
        3 => check_bundles(rest),
        4 => check_id(rest),
        5 => check_match(rest),
        _ => check_lists(rest),
    }
});

/// Each name of a certificate can be required, and is found.
fn check_names(names: Option<Vec<(SanType, String)>>) {
    for (san_type, name) in names.into_iter().flatten() {
        assert!(name.is_ascii(), "{name:?}");
        let accepted = accepts_name(&name, false, (san_type, &name));
        match san_type {
            SanType::Email | SanType::Uri => assert_eq!(accepted, !name.is_empty(), "{name:?}"),
            SanType::Dns => assert_eq!(accepted, is_valid_for(&name, &name), "{name:?}"),
            SanType::IpAddress => {
                let address: IpAddr = name.parse().expect("an address");
                assert!(accepted && address.to_string() == name, "{name:?}");
            }
            _ => unreachable!("there are no others"),
        }
    }
}

/// A certificate and a key, or one text that is both.
fn check_pair(input: &[u8]) {
    let parts = input.iter().position(|byte| *byte == 0).map(|at| (&input[..at], &input[at + 1..]));
    let (certificate, key) = parts.unwrap_or((input, input));
    let is_pair = read_pair(certificate, key);
    let has = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
    assert!(!is_pair || has(certificate, b"CERTIFICATE") && has(key, b"KEY"));
}

fn check_bundles(input: &[u8]) {
    for (domain, _) in read_trust_bundles(input).into_iter().flatten() {
        assert_eq!(spiffe_domain(&format!("spiffe://{domain}/x")), Some(&*domain));
    }
}

/// The serial numbers of a list in DER are in its bytes.
fn check_lists(input: &[u8]) {
    let Some(lists) = read_revocation_lists(input) else { return };
    assert!(!lists.is_empty());
    if let [0x30, 0x80..=0xff, ..] = input {
        let is_there = |serial: &Vec<u8>| input.windows(serial.len()).any(|window| window == serial);
        assert!(lists.iter().flatten().all(is_there));
    }
}

fn check_id(input: &[u8]) {
    let Ok(uri) = std::str::from_utf8(input) else { return };
    let domain = spiffe_domain(uri);
    let naive = || {
        let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
        let any = |c: char| lower(c) || c.is_ascii_uppercase();
        let segment = |text: &str| !["", ".", ".."].contains(&text) && text.chars().all(any);
        let good = (1..=255).contains(&domain.len()) && domain.chars().all(lower) && uri.len() <= 2048;
        (good && path.split('/').all(segment)).then_some(domain)
    };
    assert_eq!(domain, naive(), "{uri:?}");
}

/// A matcher and a name, apart from each other by a zero.
fn check_match(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let Some((exact, name)) = std::str::from_utf8(rest).ok().and_then(|text| text.split_once('\0')) else {
        return;
    };
    let ignore_case = kind & 1 != 0;
    let of = |san_type| accepts_name(exact, ignore_case, (san_type, name));
    assert_eq!(of(SanType::Dns), is_valid_for(name, exact), "{name:?} {exact:?}");
    let plain =
        !name.is_empty() && if ignore_case { name.eq_ignore_ascii_case(exact) } else { name == exact };
    assert_eq!((of(SanType::Uri), of(SanType::Email)), (plain, plain), "{name:?} {exact:?}");
    if name.parse::<IpAddr>().is_err() {
        assert_eq!(of(SanType::IpAddress), plain, "{name:?} {exact:?}");
    }
}

/// Whether a DNS name of a certificate is for a host: by labels, of which the first may be a wildcard.
fn is_valid_for(name: &str, host: &str) -> bool {
    let labels = |text: &str| -> Vec<String> {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        text.split('.').map(str::to_owned).collect()
    };
    let (name, host) = (labels(name), labels(host));
    if name[0].is_empty() || host[0].is_empty() {
        return false;
    }
    match name.iter().filter(|label| label.contains('*')).count() {
        0 => name == host,
        1 if name[0] == "*" => name.len() > 1 && name[1..] != [""] && name[1..] == host[1..],
        _ => false,
    }
}
