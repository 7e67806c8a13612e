//! SV9.16: texts of subjects, beside those of Java 17.

use x509_cert::der::Decode;

use super::*;

/// Encodings of names, with what `X500Principal.getName(RFC2253)` returns for them.
const OF_JAVA: [(&str, &str); 29] = [
    ("3000", ""),
    (
        "302b310b3009060355040613024445310d300b060355040a0c0453686f70310d300b06035504030c0463617274",
        "CN=cart,O=Shop,C=DE",
    ),
    (
        "302a3119300a060355040b0c03776562300b06035504030c0463617274310d300b060355040a0c0453686f70",
        "O=Shop,OU=web+CN=cart",
    ),
    (
        "301e311c301a060355040a0c13612c622b6322645c653c663e673b6823693d6a",
        "O=a\\,b\\+c\\\"d\\\\e\\<f\\>g\\;h\\#i\\=j",
    ),
    ("300d310b300906035504030c022361", "CN=\\#a"),
    ("300e310c300a06035504030c03206120", "CN=\\ a\\ "),
    ("300e310c300a06035504030c03202020", "CN=\\ \\ \\ "),
    ("300f310d300b06035504030c0461202062", "CN=a  b"),
    ("300b3109300706035504030c00", "CN="),
    ("300e310c300a06035504030c03610062", "CN=a\\00b"),
    ("30193117301506035504030c0e4dc3bc6c6c657220e697a5e69cac", "CN=Müller 日本"),
    ("300f310d300b06035504030c040d0a610d", "CN=\\\r\na\\\r"),
    ("300e310c300a06035504030c0361017f", "CN=a\u{1}\u{7f}"),
    (
        "302d311f301d06092a864886f70d01090116106f70734073686f702e6578616d706c65310a300806035504030c0161",
        "CN=a,1.2.840.113549.1.9.1=#16106f70734073686f702e6578616d706c65",
    ),
    ("300d310b3009060355040513023137", "2.5.4.5=#13023137"),
    ("300c310a300806032a03040c0178", "1.2.3.4=#0c0178"),
    (
        "304431173015060a0992268993f22c64011916076578616d706c6531143012060a0992268993f22c640119160473686f7031133011060a0992268993f22c6401010c03616461",
        "UID=ada,DC=shop,DC=example",
    ),
    (
        "302c310e300c06035504090c053120576179310d300b06035504070c04426f6e6e310b300906035504080c024e57",
        "ST=NW,L=Bonn,STREET=1 Way",
    ),
    ("3011310f300d060355040304066f6374657473", "CN=#04066f6374657473"),
    ("300c310a30080603550403020105", "CN=#020105"),
    ("300e310c300a06035504030c03613d62", "CN=a\\=b"),
    ("300e310c300a06035504031303612a62", "CN=a*b"),
    ("300e310c300a06035504031603614062", "CN=a@b"),
    ("300e310c300a06035504030c03c2a061", "CN=\u{a0}a"),
    ("300e310c300a06035504030c03096109", "CN=\ta\t"),
    ("300e310c300a06035504030c03205c20", "CN=\\ \\\\\\ "),
    ("3018310a300806035504030c0161310a300806035504030c0162", "CN=b,CN=a"),
    ("300d310b3009060355040312023132", "CN=#12023132"),
    ("300e310c300a06035504031a03766973", "CN=#1a03766973"),
];

/// Values of types that Java garbles: T.61 as Latin-1, UTF-16, and bytes that are no UTF-8.
const OTHERS: [(&str, &str); 3] = [
    ("3011310f300d060355040314064dfc6c6c6572", "CN=Müller"),
    ("3011310f300d06035504031e06005a006f00eb", "CN=Zoë"),
    ("300c310a300806035504030c01ff", "CN=#0c01ff"),
];

fn text_of(encoding: &str) -> String {
    let digits = |at: usize| u8::from_str_radix(&encoding[at..at + 2], 16).unwrap();
    let der: Vec<_> = (0..encoding.len()).step_by(2).map(digits).collect();
    text(&Name::from_der(&der).unwrap())
}

#[test]
fn sv9_16_subjects_are_written_byte_for_byte_as_in_java() {
    for (encoding, expected) in OF_JAVA.iter().chain(&OTHERS) {
        assert_eq!(text_of(encoding), *expected, "{encoding}");
    }
}

/// Reads the parts of a text again, without their escapes.
fn read(text: &str) -> Vec<(String, String)> {
    let (mut parts, mut part, mut chars) = (Vec::new(), String::new(), text.chars());
    let mut name = None;
    while let Some(c) = chars.next() {
        match (c, &name) {
            ('\\', _) => match chars.next().expect("something is escaped") {
                '0' => {
                    assert_eq!(chars.next(), Some('0'));
                    part.push('\0');
                }
                c => part.push(c),
            },
            ('=', None) => name = Some(std::mem::take(&mut part)),
            (',' | '+', Some(_)) => parts.push((name.take().unwrap(), std::mem::take(&mut part))),
            (c, _) => part.push(c),
        }
    }
    parts.extend(name.map(|name| (name, part)));
    parts
}

#[test]
fn sv9_16_sv13_4_texts_can_be_read_again() {
    let mut rng = fastrand::Rng::with_seed(17);
    let special: Vec<char> = ",=+<>#;\"\\ \r\0a日".chars().collect();
    for _ in 0..2_000 {
        let value: String = (0..rng.usize(0..8)).map(|_| special[rng.usize(..special.len())]).collect();
        let mut attribute = vec![0x06, 0x03, 0x55, 0x04, 0x0a, 0x0c, value.len() as u8];
        attribute.extend(value.as_bytes());
        let tlv = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let of_cn = tlv(0x31, &tlv(0x30, &[0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x01, b'c']));
        let name = tlv(0x30, &[tlv(0x31, &tlv(0x30, &attribute)), of_cn].concat());
        let text = text(&Name::from_der(&name).unwrap());
        let expected = [("CN".to_owned(), "c".to_owned()), ("O".to_owned(), value)];
        assert_eq!(read(&text), expected, "{text:?}");
    }
}

#[test]
fn sv9_14_sv9_16_the_names_of_a_certificate_are_read() {
    use rcgen::DnType;

    use crate::tls::{
        fixture::{Ca, dns, email, uri},
        names_of_peer,
    };

    let issued =
        Ca::new().issue_with([uri("spiffe://a/b"), dns("a.example"), email("a@b"), uri("u:x")], |params| {
            params.distinguished_name.push(DnType::OrganizationName, "Shop, Inc.");
            params.distinguished_name.push(DnType::CommonName, "cart");
        });
    let names = names_of_peer(&issued.der).unwrap();
    let expected = crate::resource::http_filter::rbac::TlsFacts::new()
        .with_uri_sans(["spiffe://a/b", "u:x"])
        .with_dns_sans(["a.example"])
        .with_subject(names.subject());
    assert_eq!(names, expected);
    assert!(names.subject().contains("O=Shop\\, Inc."), "{names:?}");
    assert!(names.subject().contains("CN=cart"), "{names:?}");
    for malformed in [&[][..], &[0x30, 0x80], &issued.der[..issued.der.len() / 2]] {
        assert!(names_of_peer(malformed).is_err());
    }
}
