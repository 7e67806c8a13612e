//! The fields of resources that channels do not execute.

use std::collections::BTreeSet;

use crate::wire::{Fields, Value};

mod tables;

use self::tables::{CLIENT_SIDE_WEIGHTED_ROUND_ROBIN, LEAST_REQUEST, RING_HASH, ROUND_ROBIN};
pub(super) use self::tables::{
    CLUSTER, CONNECTION_MANAGER, COOKIE_SESSION, GCP_AUTHN, HTTP_FAULT, LOAD_ASSIGNMENT, ROUTE_CONFIGURATION,
    ROUTER, UPSTREAM_TLS_CONTEXT, VIRTUAL_HOST,
};

/// The fields of a message that channels do not execute, and those with messages that have such fields; sorted by number.
pub(super) struct Table(pub(super) &'static [(u32, Entry)]);

/// What a table knows of a field.
pub(super) enum Entry {
    /// A field by the names of its message and its own.
    Ignored(&'static str),
    /// A message with fields of its own.
    Inside(&'static Table),
}

impl Table {
    /// Adds the fields that a message has. An empty value is the default, so that nothing is missed without it.
    pub(super) fn scan(&'static self, message: &[u8], found: &mut BTreeSet<&'static str>) {
        // The message was decoded before; what cannot be read has no fields.
        for field in Fields::of(message).map_while(Result::ok) {
            let Ok(place) = self.0.binary_search_by_key(&field.number, |(number, _)| *number) else {
                continue;
            };
            match (&self.0[place].1, field.value) {
                (Entry::Ignored(_), Value::Bytes([]) | Value::Varint(0)) => {}
                (Entry::Ignored(name), _) => drop(found.insert(name)),
                // The tables bound the recursion: none is inside of itself.
                (Entry::Inside(table), Value::Bytes(inner)) => table.scan(inner, found),
                (Entry::Inside(_), _) => {}
            }
        }
    }

    /// The table of a load balancing policy, by the name of its message.
    pub(super) fn of_policy(name: &str) -> Option<&'static Self> {
        Some(match name.strip_prefix("envoy.extensions.load_balancing_policies.")? {
            "round_robin.v3.RoundRobin" => &ROUND_ROBIN,
            "least_request.v3.LeastRequest" => &LEAST_REQUEST,
            "ring_hash.v3.RingHash" => &RING_HASH,
            "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin" => {
                &CLIENT_SIDE_WEIGHTED_ROUND_ROBIN
            }
            _ => return None,
        })
    }

    /// The names of all fields in the table and those inside of it.
    #[cfg(test)]
    fn names(&'static self, names: &mut BTreeSet<&'static str>) {
        for (_, entry) in self.0 {
            match entry {
                Entry::Ignored(name) => drop(names.insert(name)),
                Entry::Inside(table) => table.names(names),
            }
        }
    }
}

/// A field of endpoints, which are too many to be read once more for their fields.
pub(super) const HEALTH_CHECK_CONFIG: &str = "Endpoint.health_check_config";

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Table; 16] = [
        &UPSTREAM_TLS_CONTEXT,
        &ROUTER,
        &HTTP_FAULT,
        &GCP_AUTHN,
        &COOKIE_SESSION,
        &CLUSTER,
        &ROUTE_CONFIGURATION,
        &VIRTUAL_HOST,
        &CONNECTION_MANAGER,
        &LOAD_ASSIGNMENT,
        &ROUND_ROBIN,
        &LEAST_REQUEST,
        &RING_HASH,
        &CLIENT_SIDE_WEIGHTED_ROUND_ROBIN,
        &crate::resource::load_balancing::maglev::UNEXECUTED,
        &crate::resource::http_filter::header_mutation::UNEXECUTED,
    ];

    fn is_sorted(table: &'static Table) -> bool {
        table.0.is_sorted_by_key(|(number, _)| *number)
            && table.0.iter().all(|(_, entry)| match entry {
                Entry::Ignored(_) => true,
                Entry::Inside(table) => is_sorted(table),
            })
    }

    #[test]
    fn tables_are_sorted_for_their_search() {
        assert!(ALL.into_iter().all(is_sorted));
    }

    #[test]
    fn each_field_that_is_not_executed_is_in_the_documentation() {
        let document = include_str!("../../docs/spec/CHANNEL.md");
        let mut names = BTreeSet::from([HEALTH_CHECK_CONFIG]);
        ALL.into_iter().for_each(|table| table.names(&mut names));
        for name in names {
            let (message, field) = name.rsplit_once('.').unwrap();
            let row = document.lines().find(|line| line.starts_with(&format!("| `{message}` | ")));
            let row = row.unwrap_or_else(|| panic!("docs/spec/CHANNEL.md has no row of {message}"));
            assert!(row.contains(&format!("`{field}`")), "docs/spec/CHANNEL.md lacks {name}");
        }
    }

    #[test]
    fn fields_are_found_wherever_they_are_unless_they_have_their_default() {
        // virtual_hosts { require_tls: ALL, routes { route { timeout { seconds: 1 }, idle_timeout {} } } }, 99: "x"
        let action = [&[0x42, 2, 8, 1][..], &[0xc2, 1, 0]].concat();
        let route = [&[0x12, action.len() as u8][..], &action].concat();
        let host = [&[0x20, 2, 0x1a, route.len() as u8][..], &route].concat();
        let routes = [&[0x12, host.len() as u8][..], &host, &[0x9a, 6, 1, b'x', 0x38, 0]].concat();
        let mut found = BTreeSet::new();
        ROUTE_CONFIGURATION.scan(&routes, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["RouteAction.timeout", "VirtualHost.require_tls"]);
        let mut found = BTreeSet::new();
        ROUTE_CONFIGURATION.scan(b"\x12\xff", &mut found);
        assert!(found.is_empty());
    }
}
