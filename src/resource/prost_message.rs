//! Messages of prost as resources.

use std::{fmt, ops::Deref};

use bytes::Bytes;
use prost::{Message, Name};

use super::{Context, Invalid, Resource};

/// A message of prost as a resource of its type URL, for types of an application that are not of the xDS protocol.
///
/// The type URL is `type.googleapis.com/` and the full name of the message ([`prost::Name`]), of up to 256 bytes in all. Compilers of
/// protobuf for prost implement that trait with the setting `enable_type_names`. The name of a resource is the string in field 1 of its
/// message, as in the types of the protocol, unless the server sends it beside the message.
///
/// A message that cannot be decoded is rejected, with a NACK and the error at the watch. Everything else is accepted; a type with rules
/// of its own implements [`Resource`] itself.
///
/// ```no_run
/// use xdskit::{Client, WatchError, resource::Prost};
///
/// /// As the compiler of protobuf writes it for `message Banner { string name = 1; string text = 2; }`.
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Banner {
///     #[prost(string, tag = "1")]
///     name: String,
///     #[prost(string, tag = "2")]
///     text: String,
/// }
///
/// impl prost::Name for Banner {
///     const NAME: &'static str = "Banner";
///     const PACKAGE: &'static str = "shop";
/// }
///
/// async fn show(client: &Client) -> Result<(), WatchError> {
///     let mut banner = client.watch::<Prost<Banner>>("sale");
///     println!("{}", banner.ready().await?.text); // of type.googleapis.com/shop.Banner
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Prost<T>(pub T);

/// A type URL that is made when the crate of its message is compiled.
struct TypeUrl {
    bytes: [u8; LONGEST_TYPE_URL],
    length: usize,
}

impl<T: Name> Prost<T> {
    /// The type URL of the message.
    const URL: TypeUrl = {
        let url = TypeUrl { bytes: [0; LONGEST_TYPE_URL], length: 0 }.append("type.googleapis.com/");
        let url = if T::PACKAGE.is_empty() { url } else { url.append(T::PACKAGE).append(".") };
        url.append(T::NAME)
    };
}

impl<T: Message + Name + Default + fmt::Debug + 'static> Resource for Prost<T> {
    const TYPE_URL: &'static str = {
        let url = &Self::URL;
        match str::from_utf8(url.bytes.split_at(url.length).0) {
            Ok(url) => url,
            Err(_) => panic!("the concatenation of strings is one"),
        }
    };

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        T::decode(bytes.clone())
            .map(Self)
            .map_err(|error| Invalid::new(format!("not a valid message: {error}")))
    }
}

impl<T> Deref for Prost<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl TypeUrl {
    /// Appends a part. In a constant, a panic is an error of the compiler.
    const fn append(mut self, part: &str) -> Self {
        let part = part.as_bytes();
        let mut at = 0;
        while at < part.len() {
            assert!(self.length < LONGEST_TYPE_URL, "the type URL has more than 256 bytes");
            self.bytes[self.length] = part[at];
            self.length += 1;
            at += 1;
        }
        self
    }
}

/// The bytes of the longest type URL.
const LONGEST_TYPE_URL: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Banner {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(uint32, tag = "2")]
        weight: u32,
    }

    /// A message without a package.
    #[derive(Clone, PartialEq, Message)]
    struct Plain {}

    impl Name for Banner {
        const NAME: &'static str = "Banner";
        const PACKAGE: &'static str = "shop.v1";
    }

    impl Name for Plain {
        const NAME: &'static str = "Plain";
        const PACKAGE: &'static str = "";
    }

    #[test]
    fn the_type_url_is_that_of_the_message() {
        assert_eq!(<Prost<Banner> as Resource>::TYPE_URL, "type.googleapis.com/shop.v1.Banner");
        assert_eq!(<Prost<Plain> as Resource>::TYPE_URL, "type.googleapis.com/Plain");
    }

    #[test]
    fn messages_are_decoded_and_what_is_none_is_rejected() {
        let banner = Banner { name: "sale".into(), weight: 7 };
        let parse = |bytes: Vec<u8>| Prost::<Banner>::parse(&bytes.into(), &Context::new());
        let parsed = parse(banner.encode_to_vec()).unwrap();
        assert_eq!((parsed.weight, &parsed.0), (7, &banner));
        assert_eq!(Prost::<Banner>::name(&banner.encode_to_vec()).unwrap(), "sale");
        let text_for_a_number = [0x12, 1, b'x'];
        let error = parse(text_for_a_number.to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("not a valid message: ") && error.contains("weight"), "{error}");
    }
}
