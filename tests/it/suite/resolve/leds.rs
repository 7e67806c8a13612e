//! Endpoints of localities in collections of their own (LEDS, A95).

use macro_rules_attribute::apply;
use prost::Message as _;
use xdskit::{
    config::{AuthorityBuilder, Server},
    control_plane::AnyResource,
    pb::envoy::config::{
        core::v3::{AggregatedConfigSource, ConfigSource, config_source::ConfigSourceSpecifier},
        endpoint::v3::{LedsClusterLocalityConfig, locality_lb_endpoints::LbConfig},
    },
    resource::{Endpoint, Resource},
    testing::resources::{EndpointsBuilder, collection},
};

use super::*;
use crate::transport::Transport;

const GLOB: &str = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpoint/cart/*";
const LIST: &str = "xdstp://mesh/envoy.config.endpoint.v3.LbEndpointCollection/cart";

/// An assignment whose one locality has the endpoints of a collection.
fn assignment(of: &str) -> EndpointsBuilder {
    let leds = LedsClusterLocalityConfig {
        leds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
            ..ConfigSource::default()
        }),
        leds_collection_name: of.to_owned(),
    };
    let config = LbConfig::LedsClusterLocalityConfig(leds);
    endpoints("cart").locality("eu", "a", []).edit(|message| message.endpoints[0].lb_config = Some(config))
}

/// An endpoint as a resource of its own.
fn endpoint(name: &str, address: &str) -> AnyResource {
    let message = endpoints("cart").locality("", "", [address]).into_message();
    AnyResource::new(Endpoint::TYPE_URL, name, message.endpoints[0].lb_endpoints[0].encode_to_vec())
}

fn client(transport: Transport, server: &TestControlPlane) -> Client {
    let bootstrap = Bootstrap::builder()
        .server(Server::new(server.uri()).insecure())
        .authority("mesh", AuthorityBuilder::default());
    transport.builder_from(bootstrap.build().unwrap()).build().unwrap()
}

#[apply(servers)]
async fn a95_2_endpoints_of_a_glob_come_and_go_without_a_new_assignment(transport: Transport) {
    if !transport.api_type().is_delta() || !transport.api_type().is_aggregated() {
        return;
    }
    let server = shop().await;
    let member = |id: &str| GLOB.replace('*', id);
    server.update(|tx| {
        tx.set(assignment(GLOB));
        tx.set(endpoint(&member("x"), "10.0.1.1:80"));
    });
    let client = client(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.1.1:80").await;
    server.set(endpoint(&member("y"), "10.0.1.2:80"));
    see(&mut resolution, "cart: 10.0.1.1:80 10.0.1.2:80").await;
    server.remove(Endpoint::TYPE_URL, &member("x"));
    see(&mut resolution, "cart: 10.0.1.2:80").await;
}

#[apply(servers)]
async fn a95_2_a_list_has_endpoints_inline(transport: Transport) {
    if !transport.api_type().is_aggregated() {
        return;
    }
    let server = shop().await;
    server.update(|tx| {
        tx.set(assignment(LIST));
        tx.set(collection(LIST).inline("x", "1", endpoint("x", "10.0.2.1:80")));
    });
    let client = client(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.2.1:80").await;
    server.set(collection(LIST).inline("x", "2", endpoint("x", "10.0.2.2:80")));
    see(&mut resolution, "cart: 10.0.2.2:80").await;
}
