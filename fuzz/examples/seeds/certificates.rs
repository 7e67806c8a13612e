//! Inputs of the target `certificates`.

use base64::{Engine, engine::general_purpose::STANDARD};

/// One or more for each kind of input of the target.
pub(crate) fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let body = |pem: &str| pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    let list = STANDARD.decode(body(REVOCATION_LIST)).expect("base64");
    let body = body(CERTIFICATE);
    let der = STANDARD.decode(&body).expect("base64");
    let names = der.windows(5).position(|part| part == [0x06, 0x03, 0x55, 0x1d, 0x11]).expect("it has names");
    // Behind the identifier: the tag and the length of the text of bytes.
    let value = &der[names + 7..];
    let value = &value[..usize::from(value[1]) + 2];
    let key = format!(r#"{{"kty": "EC", "use": "x509-svid", "x5c": ["{body}"]}}"#);
    let map = format!(
        r#"{{"trust_domains": {{"a.example": {{"spiffe_sequence": 1, "keys": [{key}]}}, "b": {{}}}}}}"#
    );
    let both = format!("{CERTIFICATE}{KEY}");
    let pair = format!("{CERTIFICATE}\0{KEY}");
    let inputs: [(_, u8, &[u8]); 11] = [
        ("certificate", 0, &der[..]),
        ("names", 1, value),
        ("pair", 2, pair.as_bytes()),
        ("both", 2, both.as_bytes()),
        ("bundles", 3, map.as_bytes()),
        ("id", 4, b"spiffe://a.example/ns/x/sa/y"),
        ("exact", 5, b"\0a.example\0A.example."),
        ("wildcard", 5, b"\x01x.a.example\0*.a.example"),
        ("address", 5, b"\x002001:db8::1\x002001:DB8:0::1"),
        ("list", 6, &list),
        ("lists", 6, REVOCATION_LIST.as_bytes()),
    ];
    inputs.map(|(name, kind, input)| (name, [&[kind], input].concat())).into()
}

/// A certificate with names of each type, signed by its own key.
pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIB6jCCAZGgAwIBAgIUU04n1EVJG2cyDqm9j2wR7ppPWG0wCgYIKoZIzj0EAwIw\n\
FDESMBAGA1UEAwwJYS5leGFtcGxlMCAXDTI2MTEyNTE4NTc0MFoYDzIxMjYxMTAx\n\
MTg1NzQwWjAUMRIwEAYDVQQDDAlhLmV4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjO\n\
PQMBBwNCAASlq0PaosHU1Monx5qO7dPx/IC1K2Mdi/abhivpRUnhGsp4oeEAGC6a\n\
QzQp5ciH7L5sDCsQgftv3qPvFSBl03b/o4G+MIG7MB0GA1UdDgQWBBS2nO8IimOm\n\
ogFffwkVQLW+7wqnyTAfBgNVHSMEGDAWgBS2nO8IimOmogFffwkVQLW+7wqnyTAP\n\
BgNVHRMBAf8EBTADAQH/MEkGA1UdEQRCMECCCyouYS5leGFtcGxlhgxzcGlmZmU6\n\
Ly9hL2KBC29AYS5leGFtcGxlhwQKAAABhxAgAQ24AAAAAAAAAAAAAAABMB0GA1Ud\n\
JQQWMBQGCCsGAQUFBwMBBggrBgEFBQcDAjAKBggqhkjOPQQDAgNHADBEAiBhNipH\n\
OC8ZqZVLFJsyimLh346vfCs7Dmg/CzP0TbNxMwIgY4FMMBINfCRZAy7IgUk/P3j0\n\
dFQWl0Cq9i6z7YZBWXU=\n\
-----END CERTIFICATE-----\n\
";

/// Its key, which is for nothing else.
pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgeACrGrm4PbyWiGOl\n\
QFOUJB5XDGOUOeVm9TPb2HZwUVChRANCAASlq0PaosHU1Monx5qO7dPx/IC1K2Md\n\
i/abhivpRUnhGsp4oeEAGC6aQzQp5ciH7L5sDCsQgftv3qPvFSBl03b/\n\
-----END PRIVATE KEY-----\n\
";

/// A list of two revoked certificates of its owner, for servers alone. It is valid until 2126.
const REVOCATION_LIST: &str = "-----BEGIN X509 CRL-----\n\
MIIBNjCB3AIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlhLmV4YW1wbGUXDTI2\n\
MTEyNTIyNTI1MFoYDzIxMjYxMTAxMjI1MjUwWjA3MBICAX8XDTI2MTEwMTAwMDAw\n\
MFowIQICEjQXDTI2MTEwMTAwMDAwMFowDDAKBgNVHRUEAwoBAaBcMFowHwYDVR0j\n\
BBgwFoAUtpzvCIpjpqIBX38JFUC1vu8Kp8kwKwYDVR0cAQH/BCEwH6AaoBiGFmh0\n\
dHA6Ly9hLmV4YW1wbGUvMS5jcmyBAf8wCgYDVR0UBAMCAQIwCgYIKoZIzj0EAwID\n\
SQAwRgIhAPnXV1ir6v8ZwBVnpfpan6nm8z4hYm3WbzuA6cSo/ny9AiEA7rG07LAQ\n\
/+5GrddeIDXdtCQIAaYkH1OoyWoABkgQ2Lo=\n\
-----END X509 CRL-----\n\
";
