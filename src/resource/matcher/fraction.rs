//! Fractions of requests.

use serde::Serialize;

use super::Invalid;
use crate::pb::envoy::{
    config::core::v3::RuntimeFractionalPercent,
    r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
};

/// A fraction, such as of requests; larger numerators than the denominator count as all.
///
/// In JSON as in the message: `{"numerator": 5, "denominator": "HUNDRED"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fraction {
    /// The numerator, in units of the denominator.
    pub numerator: u32,
    /// The denominator.
    pub denominator: Denominator,
}

/// The denominator of a [`Fraction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Denominator {
    /// Percent.
    Hundred,
    /// Parts per ten thousand.
    TenThousand,
    /// Parts per million.
    Million,
}

impl Fraction {
    /// A fraction with a numerator and a denominator.
    pub const fn new(numerator: u32, denominator: Denominator) -> Self {
        Self { numerator, denominator }
    }

    /// Rules R17 and E13: the denominator is one of three.
    pub(crate) fn parse(message: FractionalPercent) -> Result<Self, Invalid> {
        let denominator = match DenominatorType::try_from(message.denominator) {
            Ok(DenominatorType::Hundred) => Denominator::Hundred,
            Ok(DenominatorType::TenThousand) => Denominator::TenThousand,
            Ok(DenominatorType::Million) => Denominator::Million,
            Err(_) => {
                let reason = format!("{} is no known denominator", message.denominator);
                return Err(Invalid::field("denominator", reason));
            }
        };
        Ok(Self::new(message.numerator, denominator))
    }

    /// Returns the default value. The runtime key, which may override it, is for proxies alone; without a default
    /// value the message has no effect (A28-4).
    pub(crate) fn parse_default(message: RuntimeFractionalPercent) -> Result<Option<Self>, Invalid> {
        message.default_value.map(Self::parse).transpose().map_err(|e| e.at("default_value"))
    }

    /// Returns the fraction in parts per million, at most 1,000,000.
    pub fn per_million(self) -> u32 {
        // R17: a numerator above its denominator is accepted, and means everything.
        self.numerator.saturating_mul(MILLION / self.denominator.get()).min(MILLION)
    }

    /// Returns whether a random number is within the fraction; `draw` is uniformly distributed below 1,000,000.
    pub fn matches(self, draw: u32) -> bool {
        draw < self.per_million()
    }
}

impl Denominator {
    /// The value of the denominator.
    pub const fn get(self) -> u32 {
        match self {
            Self::Hundred => 100,
            Self::TenThousand => 10_000,
            Self::Million => MILLION,
        }
    }
}

/// The unit of fractions and of the random numbers that are compared with them.
const MILLION: u32 = 1_000_000;
