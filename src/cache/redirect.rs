//! Redirects: names of resources in place of resources.

use crate::{
    name::ResourceName,
    resource::{Invalid, ResourceType},
    wire::{Fields, Value},
};

/// The name of another resource, which a server sent in place of the requested one, and which replaces it (rule X20).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// The name of the other resource.
    pub(crate) target: ResourceName,
}

impl Redirect {
    /// Reads the `xds.core.v3.ResourceLocator` in the place of a resource of a type: the message, or, as in the proposal
    /// TP1, one with the text in field 1.
    ///
    /// # Errors
    /// It is no locator, or not that of one resource of the type (X22).
    ///
    /// The function is called for a resource whose wrapper says that it is a locator, before the parser of the type: a locator is no
    /// resource of any type.
    pub(crate) fn parse(bytes: &[u8], ty: ResourceType) -> Result<Self, Invalid> {
        // In the published message field 1 is the scheme, an enum, so that text in it cannot be meant for that..
        let written =
            Fields::of(bytes).filter_map(Result::ok).find_map(|field| match (field.number, field.value) {
                (1, Value::Bytes(text)) => Some(text),
                _ => None,
            });
        let target = match written {
            Some(text) => ResourceName::of_locator_text(text),
            None => ResourceName::of_locator(bytes),
        };
        let target = target.map_err(|e| e.at("redirect"))?;
        match ty.check_locator(&target) {
            // A glob has members with names of their own, and a redirect one resource that is shown under the original name.
            Ok(()) if target.is_glob() => {
                Err(Invalid::field("redirect", "leads to a glob, which is not one resource"))
            }
            Ok(()) => Ok(Self { target }),
            Err(reason) => Err(Invalid::field("redirect", reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::*;
    use crate::{
        pb::xds::core::v3::ResourceLocator,
        resource::{Cluster, Resource},
    };

    fn parse(bytes: &[u8]) -> Result<String, String> {
        let parsed = Redirect::parse(bytes, ResourceType::of::<Cluster>());
        parsed.map(|redirect| redirect.target.to_string()).map_err(|invalid| invalid.to_string())
    }

    fn message(ty: &str, id: &str) -> Bytes {
        let (authority, resource_type, id) = ("a".into(), ty.into(), id.into());
        ResourceLocator { authority, resource_type, id, ..ResourceLocator::default() }.encode_to_vec().into()
    }

    /// A message with a text in field 1.
    fn text(text: &str) -> Vec<u8> {
        crate::pb::google::rpc::Status { message: text.into(), ..Default::default() }
            .encode_to_vec()
            .into_iter()
            .enumerate()
            .map(|(at, byte)| if at == 0 { 0x0a } else { byte })
            .collect()
    }

    #[test]
    fn x20_a_redirect_is_a_locator_as_message_or_text() {
        let ty = Cluster::TYPE_URL.rsplit('/').next().unwrap();
        let name = format!("xdstp://a/{ty}/x");
        assert_eq!(parse(&message(ty, "x")), Ok(name.clone()));
        assert_eq!(parse(&text(&name)), Ok(name.clone()));
        assert_eq!(
            parse(&text(&format!("{name}#alt=xdstp://b/T/x"))),
            Ok(format!("{name}#alt=xdstp://b/T/x"))
        );
        let entry = format!("xdstp://a/{ty}Collection/x#entry=e");
        assert_eq!(parse(&text(&entry)), Ok(entry));
    }

    #[test]
    fn x20_a_redirect_may_be_to_an_old_style_name() {
        assert_eq!(parse(&text("outbound|80||shop")), Ok("outbound|80||shop".into()));
    }

    #[test]
    fn x20_x22_a_redirect_leads_to_one_resource_of_the_type() {
        let ty = Cluster::TYPE_URL.rsplit('/').next().unwrap();
        assert_eq!(
            parse(&message("T", "x")).unwrap_err(),
            format!("redirect: leads to a resource of type T, not of {ty}")
        );
        assert_eq!(
            parse(&message(ty, "x/*")).unwrap_err(),
            "redirect: leads to a glob, which is not one resource"
        );
        let list = parse(&message(&format!("{ty}Collection"), "x")).unwrap_err();
        assert!(list.starts_with("redirect: leads to a resource of type envoy"), "{list}");
        assert!(parse(&text("xdstp://a")).unwrap_err().starts_with("redirect: resource name"));
        assert!(parse(b"").is_err() && parse(b"\xff").is_err());
        assert_eq!(parse(&text("*")).unwrap_err(), "redirect: leads to \"*\", which is not one resource");
        assert_eq!(parse(&[0x0a, 0]).unwrap_err(), "redirect: leads to \"\", which is not one resource");
    }
}
