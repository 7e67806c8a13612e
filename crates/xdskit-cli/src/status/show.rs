//! The status of a client, as a table and as JSON.

use std::{
    fmt::{self, Write},
    time::{Duration, SystemTime},
};

use prost::Message;
use xdskit::{
    error::Escaped,
    pb::{
        envoy::{
            admin::v3::ClientResourceStatus,
            service::status::v3::{ClientConfig, client_config::GenericXdsConfig},
        },
        google::protobuf::Timestamp,
    },
    tool_support::{age, encode_json, redacted, type_name, write_occasion, write_table},
};

use crate::json::printable;

/// One line, without its end. Credentials are redacted, since not all clients do that.
pub(super) fn json(config: &ClientConfig) -> Result<String, String> {
    let mut config = config.clone();
    for any in config.generic_xds_configs.iter_mut().filter_map(|resource| resource.xds_config.as_mut()) {
        if let Some(redacted) = redacted(&any.type_url, &any.value) {
            any.value = redacted.into();
        }
    }
    encode_json("envoy.service.status.v3.ClientConfig", &config.encode_to_vec()).map(printable)
}

/// The resources as a table, with the errors below it.
pub(super) fn table(config: &ClientConfig, server: &str, now: SystemTime) -> String {
    let mut text = String::new();
    write(&mut text, config, server, now).expect("writing to a String cannot fail");
    text
}

/// Writes the status of a client as a table.
fn write(text: &mut String, config: &ClientConfig, server: &str, now: SystemTime) -> fmt::Result {
    let node = config.node.as_ref().map(|node| node.id.as_str()).unwrap_or_default();
    writeln!(text, "Client {:?}, node {node:?}, at {server}", config.client_scope)?;
    let resources = &config.generic_xds_configs;
    if resources.is_empty() && !config.xds_config.is_empty() {
        return text.write_str(
            "! It reports its resources in the deprecated field xds_config alone, which cannot be shown: it is an older \
             Envoy, whose admin interface has them in /config_dump.",
        );
    }
    if resources.is_empty() {
        return text.write_str("No resources.");
    }
    let rows: Vec<_> = resources.iter().map(|resource| row(resource, now)).collect();
    write_table(text, &rows)?;
    for resource in resources {
        let Some(error) = &resource.error_state else { continue };
        // Most errors contain the name of the resource.
        let name = match error.details.contains(&resource.name) {
            true => String::new(),
            false => format!("{}: ", Escaped(&resource.name)),
        };
        write!(text, "\n! {name}{}", Escaped(&error.details))?;
        let age = error.last_update_attempt.as_ref().map(|at| age(time(at), now));
        match age {
            Some(age) => write_occasion(text, &error.version_info, &age)?,
            None if error.version_info.is_empty() => {}
            None => write!(text, " (version {})", Escaped(&error.version_info))?,
        }
    }
    Ok(())
}

/// The columns of a resource.
fn row(resource: &GenericXdsConfig, now: SystemTime) -> [String; 5] {
    let status = ClientResourceStatus::try_from(resource.client_status)
        .map_or_else(|_| resource.client_status.to_string(), |status| status.as_str_name().to_owned());
    [
        Escaped(&resource.name).to_string(),
        status,
        Escaped(&resource.version_info).to_string(),
        Escaped(type_name(&resource.type_url)).to_string(),
        resource.last_updated.as_ref().map(|at| age(time(at), now)).unwrap_or_default(),
    ]
}

/// Times before 1970 become 1970.
fn time(at: &Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(at.seconds.try_into().unwrap_or_default());
    let since = seconds + Duration::from_nanos(at.nanos.try_into().unwrap_or_default());
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use xdskit::pb::{
        envoy::{
            admin::v3::UpdateFailureState,
            config::{
                cluster::v3::Cluster,
                core::v3::{
                    DataSource, Node, TransportSocket, data_source::Specifier, transport_socket::ConfigType,
                },
            },
            extensions::transport_sockets::tls::v3::{CommonTlsContext, TlsCertificate, UpstreamTlsContext},
            service::status::v3::PerXdsConfig,
        },
        google::protobuf::Any,
    };

    use super::*;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    fn resource(name: &str, type_url: &str, status: ClientResourceStatus) -> GenericXdsConfig {
        GenericXdsConfig {
            type_url: type_url.into(),
            name: name.into(),
            version_info: "1".into(),
            last_updated: at(100),
            client_status: status.into(),
            ..Default::default()
        }
    }

    fn config(resources: Vec<GenericXdsConfig>) -> ClientConfig {
        ClientConfig {
            node: Some(Node { id: "me".into(), ..Default::default() }),
            client_scope: "xds:///shop".into(),
            generic_xds_configs: resources,
            ..Default::default()
        }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(300)
    }

    #[test]
    fn a_table_has_its_errors_below() {
        let mut bad = resource("cart", "type.googleapis.com/a.Cluster", ClientResourceStatus::Nacked);
        bad.error_state = Some(UpdateFailureState {
            last_update_attempt: at(290),
            details: "must be set\u{1b}".into(),
            version_info: "2".into(),
        });
        let mut odd = resource("odd", "b.Own", ClientResourceStatus::Acked);
        odd.client_status = 99;
        odd.last_updated = None;
        let expected = "Client \"xds:///shop\", node \"me\", at here:1\n\
                      Name  Status  Version  Type       LastUpdated\n\
                      cart  NACKED  1        a.Cluster  3 min ago\n\
                      odd   99      1        b.Own\n\
                      ! cart: must be set\\u{1b} (version 2, 10 s ago)";
        assert_eq!(table(&config(vec![bad, odd]), "here:1", now()), expected);
    }

    #[test]
    fn an_older_envoy_is_not_taken_for_an_empty_one() {
        assert!(table(&config(vec![]), "here:1", now()).ends_with("\nNo resources."));
        let older = ClientConfig { xds_config: vec![PerXdsConfig {}], ..config(vec![]) };
        assert!(table(&older, "here:1", now()).contains("deprecated field xds_config"));
    }

    #[test]
    fn credentials_that_another_process_sends_are_redacted() {
        let key = Specifier::InlineString("MARKER".into());
        let key = DataSource { specifier: Some(key), ..Default::default() };
        let certificate = TlsCertificate { private_key: Some(key), ..Default::default() };
        let common = CommonTlsContext { tls_certificates: vec![certificate], ..Default::default() };
        let context = UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
        let value = context.encode_to_vec().into();
        let context = Any {
            type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
                .into(),
            value,
        };
        let socket =
            TransportSocket { name: "tls".into(), config_type: Some(ConfigType::TypedConfig(context)) };
        let cluster = Cluster { name: "cart".into(), transport_socket: Some(socket), ..Default::default() };
        let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let mut cart = resource("cart", type_url, ClientResourceStatus::Acked);
        cart.xds_config = Some(Any { type_url: type_url.into(), value: cluster.encode_to_vec().into() });
        let line = json(&config(vec![cart])).expect("JSON");
        assert!(line.contains("inline_string\":\"[redacted]\"") && !line.contains("MARKER"), "{line}");
    }

    #[test]
    fn an_answer_is_one_line_of_json() {
        let config = config(vec![resource("cart", "x/y", ClientResourceStatus::Acked)]);
        let line = json(&config).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["client_scope"], "xds:///shop");
        assert_eq!(value["generic_xds_configs"][0]["client_status"], "ACKED");
        assert!(!line.contains('\n'));
    }
}
