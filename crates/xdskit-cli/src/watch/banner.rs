//! A message of an application with its descriptor set, for tests.

use prost::Message;
use xdskit::pb::{envoy::extensions::transport_sockets::tls::v3::TlsCertificate, google::protobuf::Any};

/// The message.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Banner {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
    #[prost(int64, tag = "3")]
    pub(crate) clicks: i64,
    #[prost(message, optional, tag = "4")]
    pub(crate) detail: Option<Any>,
    #[prost(message, optional, tag = "5")]
    pub(crate) certificate: Option<TlsCertificate>,
}

/// The type URL of the message.
pub(crate) const BANNER: &str = "type.googleapis.com/shop.Banner";

/// A descriptor set with the message, and with those that it contains.
pub(crate) fn descriptor_set() -> Vec<u8> {
    let any = Descriptor::new("Any", &[("type_url", 1, STRING, ""), ("value", 2, BYTES, "")]);
    let source = Descriptor::new("DataSource", &[("inline_string", 3, STRING, "")]);
    let certificate = [("private_key", 2, MESSAGE, ".envoy.config.core.v3.DataSource")];
    let banner = [
        ("name", 1, STRING, ""),
        ("text", 2, STRING, ""),
        ("clicks", 3, INT64, ""),
        ("detail", 4, MESSAGE, ".google.protobuf.Any"),
        ("certificate", 5, MESSAGE, ".envoy.extensions.transport_sockets.tls.v3.TlsCertificate"),
    ];
    let certificate = Descriptor::new("TlsCertificate", &certificate);
    let tls = "envoy.extensions.transport_sockets.tls.v3";
    let files = [
        File::new("any.proto", "google.protobuf", &[], any),
        File::new("base.proto", "envoy.config.core.v3", &[], source),
        File::new("tls.proto", tls, &["base.proto"], certificate),
        File::new("banner.proto", "shop", &["any.proto", "tls.proto"], Descriptor::new("Banner", &banner)),
    ];
    FileSet { files: files.into() }.encode_to_vec()
}

/// A descriptor set with a file that imports one outside of the set.
pub(crate) fn incomplete_descriptor_set() -> Vec<u8> {
    let banner = Descriptor::new("Banner", &[("detail", 4, MESSAGE, ".shop.Detail")]);
    FileSet { files: vec![File::new("banner.proto", "shop", &["detail.proto"], banner)] }.encode_to_vec()
}

/// `google.protobuf.FileDescriptorSet`.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(message, repeated, tag = "1")]
    files: Vec<File>,
}

/// `google.protobuf.FileDescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    dependencies: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<Descriptor>,
    #[prost(string, tag = "12")]
    syntax: String,
}

/// `google.protobuf.DescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Field>,
}

/// `google.protobuf.FieldDescriptorProto`.
#[derive(Clone, PartialEq, Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, tag = "6")]
    type_name: String,
}

impl File {
    fn new(name: &str, package: &str, dependencies: &[&str], message: Descriptor) -> Self {
        Self {
            name: name.into(),
            package: package.into(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
            messages: vec![message],
            syntax: "proto3".into(),
        }
    }
}

impl Descriptor {
    /// A message with fields by name, number, type, and name of the type.
    fn new(name: &str, fields: &[(&str, i32, i32, &str)]) -> Self {
        let field = |&(name, number, kind, type_name): &(&str, i32, i32, &str)| Field {
            name: name.into(),
            number,
            label: OPTIONAL,
            kind,
            type_name: type_name.into(),
        };
        Self { name: name.into(), fields: fields.iter().map(field).collect() }
    }
}

const OPTIONAL: i32 = 1;
const INT64: i32 = 3;
const STRING: i32 = 9;
const MESSAGE: i32 = 11;
const BYTES: i32 = 12;
