//! Load balancing policies of the application.

use serde::Serialize;
use tonic::Code;
use xdskit::{
    pb::{google::protobuf as google, xds::r#type::v3::TypedStruct},
    resource::{Context, Extension, Invalid, Payload, Registry, load_balancing::*},
};

use super::{backend::FAIL, *};

/// The last ready endpoint, and its number as metadata.
#[derive(Debug, PartialEq, Serialize)]
struct Last {
    tag: String,
}

struct Balancer {
    tag: String,
}

struct Picker {
    place: usize,
    tag: String,
}

impl Extension for Last {
    const TYPE_NAME: &'static str = "test.Last";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(settings) = payload else { return Err(Invalid::new("must be a TypedStruct")) };
        let tag = settings.get("tag").and_then(serde_json::Value::as_str);
        Ok(Self { tag: tag.ok_or(Invalid::field("tag", "must be a text"))?.to_owned() })
    }
}

impl EndpointPolicy for Last {
    fn balancer(&self, _: u64) -> Box<dyn EndpointBalancer> {
        Box::new(Balancer { tag: self.tag.clone() })
    }
}

impl EndpointBalancer for Balancer {
    fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker> {
        let place = endpoints.iter().rposition(PolicyEndpoint::is_ready).expect("one is ready");
        Box::new(Picker { place, tag: self.tag.clone() })
    }
}

impl EndpointPicker for Picker {
    fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick {
        match request.header("x-wish").as_deref() {
            Some(b"panic") => panic!("as requested"),
            Some(b"not found") => {
                EndpointPick::Fail { code: xdskit::error::Code::NotFound, message: "no wish".to_owned() }
            }
            _ => {
                request.add_metadata("x-tag", &self.tag);
                EndpointPick::Endpoint(self.place)
            }
        }
    }
}

/// A cluster with a list of policies: one that nobody knows, then that of the application.
fn cart_with_policy() -> ClusterBuilder {
    let typed = |type_url: &str| {
        let kind = Some(google::value::Kind::StringValue("hello".to_owned()));
        let fields = [("tag".to_owned(), google::Value { kind })].into();
        let type_url = format!("type.googleapis.com/{type_url}");
        policy(":xds.type.v3.TypedStruct", &TypedStruct { type_url, value: Some(google::Struct { fields }) })
    };
    cluster_with([typed("test.Unknown"), typed("test.Last")])
}

async fn mesh(backends: &[&Backend]) -> Mesh {
    let server = TestControlPlane::start().await;
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server.set(cart_with_policy());
    server.set(cart(backends));
    Mesh::with(server, |client| client.extensions(Registry::new().with_endpoint_policy::<Last>()))
}

fn wish(wish: &str) -> Request<Bytes> {
    let mut request = Request::new("hello".into());
    request.metadata_mut().insert("x-wish", wish.parse().unwrap());
    request
}

#[tokio::test]
async fn ch12_custom_lb_skips_an_unknown_policy_and_adds_metadata_at_the_pick() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = mesh(&[&one, &two]).await;
    mesh.until(|seen| seen.unwrap() == "two").await;
    let response = mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(response.metadata().get("x-tag").unwrap(), "hello");
    let error = mesh.call(FAIL, "the disk is gone").await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DataLoss, "the disk is gone"));
    two.crash();
    mesh.until(|seen| seen.is_ok_and(|name| name == "one")).await;
}

#[tokio::test]
async fn ch1_17_ch3_63_the_statuses_of_policies_are_those_of_a_control_plane() {
    let one = Backend::start("one").await;
    let mesh = mesh(&[&one]).await;
    let error = call(&mesh.channel, ECHO, wish("not found")).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("NotFound") && error.message().contains("no wish"), "{error:?}");
}

#[tokio::test]
async fn ch3_63_a_policy_that_panics_fails_its_calls_until_the_next_configuration() {
    let one = Backend::start("one").await;
    let mesh = mesh(&[&one]).await;
    mesh.ready().await;
    let error = call(&mesh.channel, ECHO, wish("panic")).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    mesh.becomes(ChannelState::TransientFailure).await;
    let error = mesh.call(ECHO, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("cluster cart: the load balancing policy panicked"), "{error:?}");
    let two = Backend::start("two").await;
    mesh.server.set(cart(&[&one, &two]));
    mesh.until(|seen| seen.is_ok()).await;
}
