//! What resources are parsed with.

use std::sync::Arc;

use crate::{
    config::{AllowedGrpcService, Bootstrap, ChannelCredentials, Server},
    engine::{Engine, Settings},
};

#[test]
fn a102_resources_may_name_the_services_that_the_bootstrap_allows() {
    let bootstrap = Bootstrap::builder()
        .server(Server::new("http://a").insecure())
        .allowed_grpc_service("dns:///e", AllowedGrpcService::new(ChannelCredentials::Insecure))
        .build()
        .unwrap();
    let engine = Engine::new(Arc::new(bootstrap), Settings::default(), 1);
    for trusted in [false, true] {
        let cx = engine.ingest.context(trusted);
        assert_eq!(cx.trusted_server, trusted);
        assert!(cx.is_grpc_service_allowed("dns:///e") && !cx.is_grpc_service_allowed("dns:///f"));
    }
}
