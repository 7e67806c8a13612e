//! Messages of types that are known at run time alone, as they are printed.

use serde_json::Value;
use xdskit::{
    error::Escaped,
    resource::AnyMessage,
    tool_support::{Descriptors, in_file, read_file, redacted, show_any},
};

use super::{print::Content, target::message_of, targets::Targets};
use crate::program::Failure;

/// A decoder of the messages of `--type`.
#[derive(Debug)]
pub struct Decoder {
    /// The messages of `--proto`.
    descriptors: Option<Descriptors>,
}

impl Decoder {
    /// A decoder of the messages of these targets. It reads the file of `--proto`.
    ///
    /// # Errors
    /// The file is unreadable or larger than 16 MiB, no descriptor set, or does not have the type.
    pub fn read(targets: &Targets) -> Result<Self, Failure> {
        let (Some(path), Some(type_url)) = (&targets.proto, &targets.type_url) else {
            return Ok(Self { descriptors: None });
        };
        let wrong = |reason: String| Failure::Usage(in_file(PROTO, path, &reason));
        let bytes = read_file(PROTO, path, MAX_DESCRIPTORS).map_err(Failure::Usage)?;
        let descriptors = Descriptors::read(&bytes).map_err(|reason| {
            let reason = Escaped(reason);
            wrong(format!("is no complete descriptor set, as protoc --include_imports writes it: {reason}"))
        })?;
        if !descriptors.has(type_url) {
            let message = message_of(type_url);
            return Err(wrong(format!("has no message {}, the type of --type", Escaped(message))));
        }
        Ok(Self { descriptors: Some(descriptors) })
    }

    /// What is printed of a message.
    pub fn content(&self, message: &AnyMessage) -> Content<'static, Value> {
        Content::decoded(self.shown(message.type_url(), message.bytes()))
    }

    /// A message as JSON, without its credentials; its bytes if its type is unknown.
    fn shown(&self, type_url: &str, bytes: &[u8]) -> Result<Value, String> {
        if let Some(descriptors) = &self.descriptors {
            return descriptors.show(type_url, bytes);
        }
        let copy = redacted(type_url, bytes);
        let mut shown = show_any(type_url, copy.as_deref().unwrap_or(bytes));
        if let Value::Object(fields) = &mut shown
            && fields.contains_key("@bytes")
        {
            fields.insert("@length".to_owned(), bytes.len().into());
        }
        Ok(shown)
    }
}

/// The option, in errors.
const PROTO: &str = "--proto";

/// The maximum size of a descriptor set in bytes.
const MAX_DESCRIPTORS: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use prost::Message;
    use serde_json::json;
    use xdskit::pb::{
        envoy::{
            config::core::v3::{DataSource, Node, data_source::Specifier},
            extensions::transport_sockets::tls::v3::TlsCertificate,
        },
        google::protobuf::Any,
    };

    use super::*;
    use crate::watch::banner::{BANNER, Banner, descriptor_set, incomplete_descriptor_set};

    const NODE: &str = "type.googleapis.com/envoy.config.core.v3.Node";

    fn with_descriptors() -> Decoder {
        Decoder { descriptors: Some(Descriptors::read(&descriptor_set()).expect("a set")) }
    }

    /// The error for a file with this content, if it has one.
    fn error(content: Option<&[u8]>, type_url: &str) -> Option<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("set.pb");
        if let Some(content) = content {
            fs::write(&path, content).expect("a file");
        }
        let targets = Targets { list: vec![], type_url: Some(type_url.into()), proto: Some(path) };
        match Decoder::read(&targets) {
            Ok(_) => None,
            Err(Failure::Usage(error)) => Some(error),
            Err(failure) => panic!("{failure:?}"),
        }
    }

    #[test]
    fn messages_are_decoded_by_the_descriptor_set() {
        let node = Node { id: "me".into(), ..Node::default() };
        let detail = Any { type_url: NODE.into(), value: node.encode_to_vec().into() };
        let banner = Banner { name: "sale".into(), clicks: -7, detail: Some(detail), ..Banner::default() };
        assert_eq!(
            with_descriptors().shown(BANNER, &banner.encode_to_vec()),
            Ok(json!({
                "@type": BANNER, "name": "sale", "clicks": "-7", "detail": {"@type": NODE, "id": "me"}
            })),
            "types of the library are known beside it"
        );
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error_of_it() {
        for bytes in [&[0x12][..], &[0x10, 1], &[0x12, 2, b'a'], &[0x12, 1, 0xff]] {
            let error = with_descriptors().shown(BANNER, bytes).expect_err("malformed");
            assert!(error.contains("is not a Banner"), "{error}");
        }
    }

    #[test]
    fn messages_of_unknown_types_are_their_bytes_with_the_length_and_known_ones_are_json() {
        let decoder = Decoder { descriptors: None };
        assert_eq!(
            decoder.shown(BANNER, b"\x0a\x01a"),
            Ok(json!({"@type": BANNER, "@bytes": "CgFh", "@length": 3}))
        );
        let node = Node { id: "me".into(), ..Node::default() };
        let shown = decoder.shown(NODE, &node.encode_to_vec());
        assert_eq!(shown, Ok(json!({"@type": NODE, "id": "me"})));
    }

    #[test]
    fn credentials_are_redacted_in_fields_and_extensions_of_messages() {
        let key =
            DataSource { specifier: Some(Specifier::InlineString("MARKER".into())), ..Default::default() };
        let certificate = TlsCertificate { private_key: Some(key), ..Default::default() };
        let type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.TlsCertificate";
        let detail = Any { type_url: type_url.into(), value: certificate.encode_to_vec().into() };
        let both =
            Banner { detail: Some(detail.clone()), certificate: Some(certificate), ..Banner::default() };
        let shown = with_descriptors().shown(BANNER, &both.encode_to_vec()).expect("a banner").to_string();
        assert!(!shown.contains("MARKER") && shown.matches("[redacted]").count() == 2, "{shown}");
        let extension = Banner { detail: Some(detail), ..Banner::default() }.encode_to_vec();
        let shown = Decoder { descriptors: None }.shown(BANNER, &extension).expect("bytes");
        let bytes = base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            shown["@bytes"].as_str().expect("base64"),
        );
        let bytes = String::from_utf8_lossy(&bytes.expect("base64")).into_owned();
        assert!(!bytes.contains("MARKER") && bytes.contains("[redacted]"), "{bytes}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_reason() {
        let set = descriptor_set();
        let too_large = vec![0; MAX_DESCRIPTORS as usize + 1];
        for (content, type_url, reason) in [
            (None, BANNER, "No such file"),
            (Some(&b"syntax = \"proto3\";"[..]), BANNER, "is no complete descriptor set"),
            (Some(&incomplete_descriptor_set()), BANNER, "detail.proto"),
            (Some(b""), BANNER, "has no message shop.Banner"),
            (Some(&set), "type.googleapis.com/shop.Baner", "has no message shop.Baner"),
            (Some(&too_large), BANNER, "larger than 16 MiB"),
        ] {
            let error = error(content, type_url).expect(reason);
            for part in ["--proto", "set.pb", reason] {
                assert!(error.contains(part), "{part:?} is not in {error:?}");
            }
        }
        assert_eq!(error(Some(&set), BANNER), None);
        let folder = Targets { list: vec![], type_url: Some(BANNER.into()), proto: Some(PathBuf::from("/")) };
        assert!(Decoder::read(&folder).is_err(), "a folder is no file");
    }
}
