//! maglev, Envoy's policy.

use prost::Message;
use serde::Serialize;

use crate::{
    pb::envoy::extensions::load_balancing_policies::maglev::v3 as pb,
    resource::{
        Context, Extension, Invalid, Payload, remarks,
        unexecuted::{Entry::Ignored, Table},
    },
};

/// Settings of [`LbPolicy::Maglev`](super::LbPolicy::Maglev); the hash function is always XXH64.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Maglev {
    /// The number of entries of the table: a prime of at most 5,000,011; 65,537 by default.
    pub table_size: u32,
    /// Whether an endpoint has entries by its weight and that of its locality, and not by its weight alone.
    pub locality_weighted: bool,
}

impl Maglev {
    /// A table of this size, or of the default one.
    pub(super) fn new(table_size: Option<u64>, locality_weighted: bool) -> Result<Self, Invalid> {
        let size = table_size.unwrap_or(DEFAULT_TABLE_SIZE);
        // The limit first: `is_prime` takes time, and its squares overflow near the end of `u32`.
        let table_size = u32::try_from(size).ok().filter(|size| *size <= MAX_TABLE_SIZE && is_prime(*size));
        let table_size = table_size.ok_or_else(|| {
            Invalid::field("table_size", format!("must be a prime of at most {MAX_TABLE_SIZE}, is {size}"))
        })?;
        Ok(Self { table_size, locality_weighted })
    }
}

impl Extension for Maglev {
    const TYPE_NAME: &'static str = "envoy.extensions.load_balancing_policies.maglev.v3.Maglev";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Message(bytes) = payload else { return Err(Invalid::new("it has no JSON form")) };
        remarks::scan(&UNEXECUTED, &bytes);
        let from = pb::Maglev::decode(bytes)?;
        Self::new(from.table_size.map(|size| size.value), from.locality_weighted_lb_config.is_some())
    }
}

/// Whether a number is a prime, by trial division: some 1,100 steps for the largest table.
pub(crate) fn is_prime(number: u32) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.all(|divisor| !number.is_multiple_of(divisor))
}

/// The fields that a channel does not execute.
pub(in crate::resource) static UNEXECUTED: Table =
    Table(&[(2, Ignored("Maglev.consistent_hashing_lb_config"))]);
/// Envoy's default.
const DEFAULT_TABLE_SIZE: u64 = 65_537;
/// Envoy's maximum, which is a prime.
const MAX_TABLE_SIZE: u32 = 5_000_011;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::google::protobuf::UInt64Value;

    fn parse(table_size: Option<u64>) -> Result<Maglev, String> {
        let table_size = table_size.map(|value| UInt64Value { value });
        let from = pb::Maglev { table_size, ..Default::default() };
        let parsed = Maglev::parse(Payload::Message(from.encode_to_vec().into()), &Context::new());
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn maglev_tables_have_a_prime_number_of_entries() {
        let maglev = |table_size| Ok(Maglev { table_size, locality_weighted: false });
        assert_eq!(parse(None), maglev(65_537));
        for size in [2, 3, 5, 251, 65_521, MAX_TABLE_SIZE] {
            assert_eq!(parse(Some(size.into())), maglev(size));
        }
        for size in [0, 1, 4, 9, 65_536, 5_000_012, 5_000_077, u64::MAX] {
            let error = format!("table_size: must be a prime of at most 5000011, is {size}");
            assert_eq!(parse(Some(size)), Err(error));
        }
    }

    #[test]
    fn maglev_weights_of_localities_count_where_it_is_configured() {
        let weighted =
            pb::Maglev { locality_weighted_lb_config: Some(Default::default()), ..Default::default() };
        let parsed = Maglev::parse(Payload::Message(weighted.encode_to_vec().into()), &Context::new());
        assert_eq!(parsed, Ok(Maglev { table_size: 65_537, locality_weighted: true }));
    }
}
