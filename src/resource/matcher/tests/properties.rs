//! Comparisons of the matchers with their reference models.

use std::net::IpAddr;

use proptest::prelude::*;

use super::{
    super::model::{Text, a_condition, a_path, a_text, rank},
    *,
};

/// The bits of an address; IPv4-mapped addresses are converted to IPv4.
fn bits(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("4:{:032b}", u32::from(v4)),
        IpAddr::V6(v6) => match format!("{:0128b}", u128::from(v6)) {
            bits if bits.starts_with(&mapped()) => format!("4:{}", &bits[96..]),
            bits => format!("6:{bits}"),
        },
    }
}

fn mapped() -> String {
    "0".repeat(80) + &"1".repeat(16)
}

/// Addresses with long common prefixes.
fn an_address() -> impl Strategy<Value = IpAddr> {
    let byte = prop::sample::select(vec![0u8, 1, 128, 255]);
    let v4 = prop::array::uniform4(byte);
    let group = prop::sample::select(vec![0u16, 1, 0x8000, 0xffff]);
    let v6 = prop::array::uniform2(group).prop_map(|[first, last]| [first, 0, 0, 0, 0, 0, 0, last]);
    prop_oneof![
        v4.clone().prop_map(IpAddr::from),
        v4.prop_map(|v4| IpAddr::V6(std::net::Ipv4Addr::from(v4).to_ipv6_mapped())),
        v6.prop_map(IpAddr::from),
    ]
}

proptest! {
    #[test]
    fn texts_match_as_in_the_model((model, ignore_case) in a_text(), texts in texts()) {
        let matcher = StringMatcher::parse(model.message(ignore_case));
        // Empty patterns are rejected (M2 to M4); the model generates none.
        let matcher = matcher.unwrap();
        for text in texts {
            prop_assert_eq!(matcher.matches(&text), model.matches(&text, ignore_case), "{:?}", text);
        }
    }

    #[test]
    fn headers_match_as_in_the_model(model in a_condition(), invert: bool, texts in texts()) {
        let matcher = HeaderMatcher::parse(model.message("x", invert)).unwrap();
        prop_assert_eq!(matcher.matches(None), model.matches(None, invert));
        for text in texts {
            prop_assert_eq!(matcher.matches(Some(&text)), model.matches(Some(&text), invert), "{:?}", text);
        }
    }

    #[test]
    fn paths_match_as_in_the_model(
        (model, ignore_case) in a_path(),
        paths in prop::collection::vec("/?[aAbB/]{0,4}", 1..8),
    ) {
        let specifier = match &model {
            Text::Exact(text) => PathSpecifier::Path(text.clone()),
            Text::Prefix(text) => PathSpecifier::Prefix(text.clone()),
            Text::PathSeparatedPrefix(text) => PathSpecifier::PathSeparatedPrefix(text.clone()),
            Text::Regex(pattern) => PathSpecifier::SafeRegex(regex(&pattern.text())),
            Text::Suffix(_) | Text::Contains(_) => unreachable!("no path is matched by its end or middle"),
        };
        let matcher = PathMatcher::parse(Some(specifier), !ignore_case).unwrap();
        for path in paths {
            prop_assert_eq!(matcher.matches(&path), model.matches(&path, ignore_case), "{:?}", path);
        }
    }

    #[test]
    fn ranges_hold_the_addresses_whose_first_bits_are_the_same(
        network in an_address(),
        length in 0..130u8,
        addresses in prop::collection::vec(an_address(), 1..16),
    ) {
        let range = Cidr::new(network, length);
        let is_v6 = matches!(network, IpAddr::V6(_));
        for address in addresses {
            // An IPv6 prefix that ends within the IPv4 mapping stays IPv6.
            let (mine, other) = if is_v6 && length < 96 {
                (format!("6:{:0128b}", u128::from(v6(network))), bits(address))
            } else {
                (bits(network), bits(address))
            };
            let length = match mine.starts_with("4:") {
                true if is_v6 => usize::from(length - 96).min(32),
                true => usize::from(length).min(32),
                false => usize::from(length).min(128),
            };
            let expected = mine[..2 + length] == other[..(2 + length).min(other.len())];
            prop_assert_eq!(range.contains(address), expected, "{} in {}", address, range);
        }
        prop_assert_eq!(range.to_string().parse(), Ok(range));
        prop_assert!(range.contains(range.address()));
    }

    #[test]
    fn a_fraction_lets_its_part_of_all_draws_through(
        numerator in prop_oneof![0..200u32, any::<u32>()],
        denominator in prop::sample::select(vec![
            Denominator::Hundred, Denominator::TenThousand, Denominator::Million,
        ]),
        draw in 0..1_000_000u32,
    ) {
        let fraction = Fraction::new(numerator, denominator);
        let expected = u64::from(draw) * u64::from(denominator.get()) < u64::from(numerator) * 1_000_000;
        prop_assert_eq!(fraction.matches(draw), expected);
    }

    #[test]
    fn a28_1_domains_fit_as_in_the_model(
        patterns in prop::collection::vec(r"\*|\*?[aAb.]{1,3}|[aAb.]{1,3}\*", 2),
        host in "[abB.]{0,4}",
    ) {
        let fits = patterns.iter().map(|pattern| DomainPattern::new(pattern.as_str()).unwrap().fit(&host));
        let fits: Vec<_> = fits.collect();
        let ranks: Vec<_> = patterns.iter().map(|pattern| rank(pattern, &host)).collect();
        prop_assert_eq!(fits[0].is_some(), ranks[0].is_some());
        prop_assert_eq!(fits[0].cmp(&fits[1]), ranks[0].cmp(&ranks[1]));
    }
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[aAbB1,/]{0,4}|-[1-4]|[0-4]", 1..8)
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
