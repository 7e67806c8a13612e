//! The keys of requests.

use std::{collections::BTreeMap, sync::Arc};

use crate::{resolve::RouteQuery, resource::route_lookup::RouteLookup};

/// What a request is looked up by. Requests with equal keys share a lookup and its response.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LookupKey(Arc<Contents>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Contents {
    /// The path of the request, which selects the key builder. The lookup service does not see it.
    path: Box<str>,
    /// The keys that the lookup service sees, with their values.
    keys: BTreeMap<Box<str>, Box<str>>,
}

impl LookupKey {
    /// Builds the key of a request to a host. Without a key builder for its method it has no keys, as in gRPC. A header that is absent
    /// has no key; bytes of a value that are not UTF-8 are replaced, since keys are protobuf strings.
    pub(crate) fn new(config: &RouteLookup, host: &str, query: &RouteQuery<'_>) -> Self {
        let path = query.path();
        let mut keys = BTreeMap::new();
        let mut add = |key: &str, value: &str| drop(keys.insert(key.into(), value.into()));
        if let Some(builder) = config.key_builder(path) {
            for header in &builder.headers {
                if let Some(value) = header.names.iter().find_map(|name| query.header_value(name)) {
                    add(&header.key, &String::from_utf8_lossy(&value));
                }
            }
            for (key, value) in &builder.constants {
                add(key, value);
            }
            // A path without a service and a method has no key builder.
            let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
            for (key, value) in
                [(&builder.host, host), (&builder.service, service), (&builder.method, method)]
            {
                if let Some(key) = key {
                    add(key, value);
                }
            }
        }
        Self(Arc::new(Contents { path: path.into(), keys }))
    }

    /// The keys for the lookup service, with their values.
    pub(crate) fn keys(&self) -> &BTreeMap<Box<str>, Box<str>> {
        &self.0.keys
    }

    /// The size of the path, the keys and their values in bytes.
    pub(super) fn size(&self) -> usize {
        let keys = self.0.keys.iter().map(|(key, value)| key.len() + value.len());
        self.0.path.len() + keys.sum::<usize>()
    }

    /// A key without keys.
    #[cfg(test)]
    pub(super) fn of_path(path: &str) -> Self {
        Self(Arc::new(Contents { path: path.into(), keys: BTreeMap::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::route_lookup::lookups::tests::config;

    /// The keys of a request, as `key=value` in the order of keys.
    fn keys(path: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let mut query = RouteQuery::new(path, 0);
        for (name, value) in headers {
            query = query.with_header(name, value);
        }
        let key = LookupKey::new(&config(), "shop", &query);
        key.keys().iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn rl1_keys_are_those_of_the_methods_builder() {
        let constant = ["c=constant", "h=shop", "m=Get", "s=shop.Cart"].map(str::to_owned).to_vec();
        assert_eq!(keys("/shop.Cart/Get", &[]), constant);
        // The first header that is present counts, with all of its values.
        let headers = [("x-tenant", "blue"), ("x-user", "ada"), ("x-user", "bob")];
        let user = [
            &["c=constant", "h=shop", "m=Get", "s=shop.Cart"].map(str::to_owned)[..],
            &["u=ada,bob".to_owned()],
        ];
        assert_eq!(keys("/shop.Cart/Get", &headers), user.concat());
        assert_eq!(keys("/shop.Cart/Get", &headers[..1]).last().unwrap(), "u=blue");
        // The builder of the service, and none.
        assert_eq!(keys("/shop.Cart/Add", &headers), ["t=blue"]);
        assert!(keys("/shop.Other/Get", &headers).is_empty());
    }

    #[test]
    fn rl1_requests_with_other_paths_have_other_keys() {
        let key = |path| LookupKey::new(&config(), "shop", &RouteQuery::new(path, 0));
        assert_ne!(key("/shop.Other/Get"), key("/shop.Other/Add"));
        assert_eq!(key("/shop.Other/Get?a=b"), key("/shop.Other/Get"));
    }
}
