//! The context parameters of a name.

use std::collections::BTreeMap;

use super::encoding::{self, encode_into};

/// The context parameters of an `xdstp:` name: unordered keys with one value each, part of the name's identity.
///
/// They are stored decoded. Sets with the same keys and values are equal, whatever their order or spelling in the
/// name.
///
/// ```
/// use xdskit::name::ResourceName;
///
/// let name = ResourceName::parse("xdstp://a/envoy.config.cluster.v3.Cluster/c?zone=b&env=test")?;
/// let params = name.context_params().expect("it is an xdstp name");
/// assert_eq!(params.get("env"), Some("test"));
/// assert_eq!(name.as_str(), "xdstp://a/envoy.config.cluster.v3.Cluster/c?env=test&zone=b");
/// # Ok::<(), xdskit::name::NameError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextParams(BTreeMap<String, String>);

impl ContextParams {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Iterates over keys and values, decoded, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The number of parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a key, replacing a previous value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// Composes the parameters of a request, with later sources taking precedence: those of the node, those in the
    /// name (`self`), `xds.client_feature.<feature>=true` for each feature, and `xds.resource.<attribute>` for each
    /// attribute that the client adds for this resource.
    pub fn composed(&self, node: &Self, client_features: &[&str], attributes: &[(&str, &str)]) -> Self {
        let mut all = node.clone();
        all.extend(self.iter());
        for feature in client_features {
            all.insert(format!("xds.client_feature.{feature}"), "true");
        }
        for (attribute, value) in attributes {
            all.insert(format!("xds.resource.{attribute}"), *value);
        }
        all
    }

    /// Appends `?k=v&…`, escaped and in canonical order: sorted by the escaped `k=v`.
    ///
    /// The order of the map is that of the decoded keys, which escapes change.
    pub(super) fn encode_into(&self, out: &mut String) {
        let mut pairs: Vec<String> = self.iter().map(|(key, value)| encoded_pair(key, value)).collect();
        // By text, as other implementations sort: servers that compare text have to see the same order from each of them (X6).
        pairs.sort_unstable();
        for (index, pair) in pairs.iter().enumerate() {
            out.push(if index == 0 { '?' } else { '&' });
            out.push_str(pair);
        }
    }

    /// Parses the text between `?` and `#`. An error consists of the position (in bytes from the start of `text`) and
    /// the reason.
    pub(super) fn parse(text: &str, reserved: Reserved) -> Result<Self, (usize, String)> {
        let mut params = BTreeMap::new();
        let mut at = 0;
        for pair in text.split('&') {
            // `?`, `&&` and a trailing `&` have empty pairs, which are no parameters.
            if !pair.is_empty() {
                let (key, value) = parse_pair(pair).map_err(|e| (at + e.at, e.reason.to_owned()))?;
                if reserved == Reserved::Rejected && key.starts_with(RESERVED_PREFIX) {
                    let reason =
                        format!("key {key:?} is reserved: `{RESERVED_PREFIX}*` is set by the client");
                    return Err((at, reason));
                }
                // Taking one of two values would let client and server disagree about the resource (X3).
                if params.contains_key(&key) {
                    return Err((at, format!("key {key:?} occurs twice")));
                }
                params.insert(key, value);
            }
            at += pair.len() + 1;
        }
        Ok(Self(params))
    }
}

impl<K: Into<String>, V: Into<String>> Extend<(K, V)> for ContextParams {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        self.0.extend(pairs.into_iter().map(|(key, value)| (key.into(), value.into())));
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for ContextParams {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut params = Self::default();
        params.extend(pairs);
        params
    }
}

/// The handling of keys that start with `xds.`: the client sets them, so a name in an application must not have them
/// (X8), but a name from a server does, since it repeats that of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserved {
    /// Keys with the reserved prefix are errors.
    Rejected,
    /// Keys with the reserved prefix are like others.
    Accepted,
}

/// Parses a key and a value.
///
/// A key without `=` has the empty value. The position of an error is that in the pair.
fn parse_pair(pair: &str) -> Result<(String, String), encoding::DecodeError> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let decoded_key = encoding::decode(key)?;
    let decoded_value = encoding::decode(value)
        .map_err(|e| encoding::DecodeError { at: key.len() + 1 + e.at, reason: e.reason })?;
    Ok((decoded_key.into_owned(), decoded_value.into_owned()))
}

/// A key and a value, as in a name. Both parts of a pair escape the same characters, `=` and `&` among them.
pub(super) fn encoded_pair(key: &str, value: &str) -> String {
    let mut pair = String::with_capacity(key.len() + value.len() + 1);
    encode_into(&mut pair, key, encoding::PARAM);
    pair.push('=');
    encode_into(&mut pair, value, encoding::PARAM);
    pair
}

/// The prefix of keys that clients add.
const RESERVED_PREFIX: &str = "xds.";
