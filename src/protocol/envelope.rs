use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

use super::request::put_text;
use crate::{
    resource::services::{WRAPPER, WRAPPER_V2},
    wire::{Field, Fields, Malformed, Value},
};

/// A `DiscoveryResponse` or a `DeltaDiscoveryResponse`, sliced: nothing of it is copied, and its resources are read one
/// by one.
#[derive(Debug)]
pub(crate) struct Envelope {
    /// The message as received; the spans are parts of it.
    message: Bytes,
    /// Set in the incremental variant: all resources are wrapped and have versions, and removals are listed.
    delta: bool,
    version: Span,
    type_url: Span,
    nonce: Span,
    /// The elements of `resources`: wrappers in the incremental variant, otherwise `Any`s that may hold one.
    resources: Vec<Span>,
    /// The first bytes of an element of the type, up to the length of its value.
    head: Bytes,
    /// The names of removed resources.
    removed: Vec<Span>,
    /// The elements of `resource_errors`.
    errors: Vec<Span>,
    /// The field `control_plane`, by which a server identifies itself; empty if it is not set.
    control_plane: Span,
    /// When it was received; `None` where that is not recorded.
    pub(crate) arrived_at: Option<Instant>,
}

/// One element of `resources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    /// The name in the wrapper `envoy.service.discovery.v3.Resource`; empty when there is none.
    pub(crate) wrapper_name: Span,
    /// Whether the element is a wrapper, so that the fields beside the body may be set.
    pub(crate) is_wrapped: bool,
    /// The version of the resource alone; empty without a wrapper.
    pub(crate) version: Span,
    /// The TTL, for which it is valid without being sent or confirmed; for ever if there is none.
    pub(crate) ttl: Option<Duration>,
    /// The wrapper has other names for it: see [`Envelope::aliases`].
    pub(crate) has_aliases: bool,
    /// The resource, or what is in its place.
    pub(crate) body: Body,
}

/// The content of an [`Item`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// The bytes of the resource, of the type of the response.
    Resource(Span),
    /// The bytes of a locator in place of the resource: a redirect (X20).
    Redirect(Span),
    /// A wrapper without a resource: it refreshes a TTL (B1.18, B2.16), or reports that there is none (B2.17, B2.18).
    Unset,
    /// An element that is no resource of the type, and why.
    Unusable(Unusable),
}

/// The reason why an element of a response is no resource of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    Malformed(Malformed),
    /// The type URL differs from the one of the response.
    WrongType(Span),
}

/// One element of `resource_errors` (proposal TP3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerError {
    /// The resource that the error is of; empty if it is not set.
    pub(crate) name: Span,
    /// The code of `google.rpc.Status`; 0, which is no error, if it is not set.
    pub(crate) code: i32,
    /// The text of the error, in words of the server.
    pub(crate) message: Span,
}

/// A part of the message, by its offset and length in bytes. Half the size of a `Range<usize>`: a response may have 100,000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Envelope {
    /// Finds the parts of the response. The content of the resources is not read.
    pub(crate) fn parse(message: Bytes, delta: bool) -> Result<Self, Malformed> {
        // Spans have offsets of 32 bits.
        if u32::try_from(message.len()).is_err() {
            return Err(Malformed { offset: 0, what: "over 4 GiB" });
        }
        let none = Span::default();
        let mut envelope = Self {
            version: none,
            type_url: none,
            nonce: none,
            resources: vec![],
            head: Bytes::new(),
            removed: vec![],
            errors: vec![],
            control_plane: none,
            arrived_at: None,
            delta,
            message,
        };
        let message = envelope.message.clone();
        for field in Fields::of(&message) {
            let field = field?;
            match (field.number, delta) {
                (1, _) => envelope.version = Span::of_text(&field, 0)?,
                (2, _) => envelope.resources.push(Span::of(&field, 0)?),
                (4, _) => envelope.type_url = Span::of_text(&field, 0)?,
                (5, _) => envelope.nonce = Span::of_text(&field, 0)?,
                (6, true) => envelope.removed.push(Span::of_text(&field, 0)?),
                // `removed_resource_names`, which have constraints beside the name.
                (8, true) => {
                    let name = envelope.first_text(Span::of(&field, 0)?)?;
                    envelope.removed.push(name);
                }
                (6, false) | (7, true) => envelope.control_plane = Span::of(&field, 0)?,
                (7, false) | (9, true) => envelope.errors.push(Span::of(&field, 0)?),
                _ => {}
            }
        }
        envelope.head = head(envelope.type_url());
        Ok(envelope)
    }

    /// The identifier of the server, if the response has one; empty for a message `control_plane` without it.
    pub(crate) fn control_plane(&self) -> Option<&str> {
        // What is no text is no identifier, and no reason to reject the response.
        let identifier = || self.first_text(self.control_plane).unwrap_or_default();
        (self.control_plane.length > 0).then(|| self.text(identifier()))
    }

    /// Whether it is of the incremental variant.
    pub(crate) fn is_delta(&self) -> bool {
        self.delta
    }

    /// The version of the response: of the type in the state of the world, for people in the incremental variant (B2.31).
    pub(crate) fn version(&self) -> &str {
        self.text(self.version)
    }

    pub(crate) fn type_url(&self) -> &str {
        self.text(self.type_url)
    }

    pub(crate) fn nonce(&self) -> &str {
        self.text(self.nonce)
    }

    /// The number of elements of `resources`.
    pub(crate) fn len(&self) -> usize {
        self.resources.len()
    }

    /// The names of removed resources; none but in the incremental variant.
    pub(crate) fn removed(&self) -> &[Span] {
        &self.removed
    }

    /// The size of the whole message in bytes.
    pub(crate) fn size(&self) -> usize {
        self.message.len()
    }

    /// The element `index` of `resources`, unwrapped.
    pub(crate) fn item(&self, index: usize) -> Item {
        let span = self.resources[index];
        let item = if self.delta {
            self.wrapped(span)
        } else if let Some(value) = self.bare(span) {
            Ok(Item::bare(Body::Resource(value)))
        } else {
            self.any(span).and_then(|(type_url, value)| match self.text(type_url) {
                WRAPPER | WRAPPER_V2 => self.wrapped(value),
                _ => Ok(Item::bare(self.body(type_url, value))),
            })
        };
        item.unwrap_or_else(|malformed| Item::bare(Body::Unusable(Unusable::Malformed(malformed))))
    }

    /// Whether the element `index` of `resources` is this resource of the type of the response, without a wrapper, by
    /// comparing bytes. The fields must come in the order in which all encoders write them.
    pub(crate) fn is_bare(&self, index: usize, value: &[u8]) -> bool {
        self.bare(self.resources[index]).is_some_and(|found| self.bytes(found) == value)
    }

    /// The value of an `Any` of the type of the response, if its fields are written as all encoders write them.
    fn bare(&self, any: Span) -> Option<Span> {
        let rest = self.bytes(any).strip_prefix(&*self.head)?;
        // A varint of up to four bytes: longer ones are over the size of any message.
        let mut length = 0;
        for (place, byte) in rest.iter().take(4).enumerate() {
            length |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                let value = |length| Span { start: any.start + any.length - length, length };
                return (place + 1 + length == rest.len()).then(|| value(length as u32));
            }
        }
        None
    }

    /// The aliases of the element `index` of `resources`; none without a wrapper. They are read anew with each call, since few
    /// elements have any.
    pub(crate) fn aliases(&self, index: usize) -> Vec<Span> {
        let span = self.resources[index];
        let wrapper = if self.delta { Ok(span) } else { self.any(span).map(|(_, value)| value) };
        let Ok(wrapper) = wrapper else { return Vec::new() };
        let fields = Fields::of(self.bytes(wrapper)).filter_map(Result::ok);
        let aliases = fields.filter(|field| field.number == 4);
        aliases.filter_map(|field| Span::of_text(&field, wrapper.start).ok()).collect()
    }

    /// The elements of `resource_errors`.
    pub(crate) fn errors(&self) -> impl Iterator<Item = Result<ServerError, Malformed>> {
        self.errors.iter().map(|span| self.server_error(*span))
    }

    /// The bytes of a span of this message.
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        &self.message[span.start as usize..][..span.length as usize]
    }

    /// The text of a span that was checked to be text when it was made.
    pub(crate) fn text(&self, span: Span) -> &str {
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The whole message, which its spans are parts of.
    pub(crate) fn message(&self) -> &Bytes {
        &self.message
    }

    /// All bytes of `resources`, of removed resources and of errors, each with a number of its kind, for distinguishing
    /// responses.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let kinds = [&self.resources, &self.removed, &self.errors];
        let spans = kinds.into_iter().enumerate();
        spans.flat_map(move |(kind, spans)| spans.iter().map(move |span| (kind as u8, self.bytes(*span))))
    }

    /// The body of an `Any`: a resource only if its type is that of the response.
    fn body(&self, type_url: Span, value: Span) -> Body {
        if self.bytes(type_url) == self.bytes(self.type_url) {
            Body::Resource(value)
        } else {
            Body::Unusable(Unusable::WrongType(type_url))
        }
    }

    /// The element in a wrapper. What is wrong with its fields makes the body unusable, as long as the wrapper can be read.
    fn wrapped(&self, span: Span) -> Result<Item, Malformed> {
        let mut item = Item { is_wrapped: true, ..Item::bare(Body::Unset) };
        let mut malformed = None;
        for field in Fields::of(self.bytes(span)) {
            let field = field?;
            match field.number {
                1 => item.version = Span::of_text(&field, span.start)?,
                2 => match Span::of(&field, span.start).and_then(|any| self.any(any)) {
                    Ok((type_url, value)) if self.bytes(type_url) == LOCATOR.as_bytes() => {
                        item.body = Body::Redirect(value);
                    }
                    Ok((type_url, value)) => item.body = self.body(type_url, value),
                    Err(unusable) => malformed = Some(unusable),
                },
                3 => item.wrapper_name = Span::of_text(&field, span.start)?,
                4 => item.has_aliases = true,
                6 => match Span::of(&field, span.start).and_then(|ttl| self.duration(ttl)) {
                    Ok(ttl) => item.ttl = Some(ttl),
                    Err(unusable) => malformed = Some(unusable),
                },
                8 => item.wrapper_name = self.first_text(Span::of(&field, span.start)?)?,
                _ => {}
            }
        }
        // The name of the wrapper tells which resource is rejected, whatever else is wrong in it.
        if let Some(malformed) = malformed {
            item.body = Body::Unusable(Unusable::Malformed(malformed));
        }
        Ok(item)
    }

    /// A `google.protobuf.Duration`, which must not be negative here.
    fn duration(&self, span: Span) -> Result<Duration, Malformed> {
        let (mut seconds, mut nanos) = (0, 0);
        for field in Fields::of(self.bytes(span)) {
            match field? {
                Field { number: 1, value: Value::Varint(value), .. } => seconds = value,
                Field { number: 2, value: Value::Varint(value), .. } => nanos = value,
                _ => {}
            }
        }
        // Negative numbers are sign-extended on the wire, which makes them large ones.
        match u32::try_from(nanos) {
            Ok(nanos) if nanos < 1_000_000_000 && i64::try_from(seconds).is_ok() => {
                Ok(Duration::new(seconds, nanos))
            }
            Ok(_) | Err(_) => Err(Malformed { offset: span.start as usize, what: "ttl out of range" }),
        }
    }

    /// The type URL and the value of a `google.protobuf.Any`.
    fn any(&self, span: Span) -> Result<(Span, Span), Malformed> {
        let mut any = (Span::default(), Span { start: span.start, length: 0 });
        for field in Fields::of(self.bytes(span)) {
            let field = field?;
            match field.number {
                1 => any.0 = Span::of_text(&field, span.start)?,
                2 => any.1 = Span::of(&field, span.start)?,
                _ => {}
            }
        }
        Ok(any)
    }

    /// The text in the first field of a message: the name of an `envoy.service.discovery.v3.ResourceName`, the identifier of an
    /// `envoy.config.core.v3.ControlPlane`.
    fn first_text(&self, span: Span) -> Result<Span, Malformed> {
        let mut name = Span::default();
        for field in Fields::of(self.bytes(span)) {
            let field = field?;
            if field.number == 1 {
                name = Span::of_text(&field, span.start)?;
            }
        }
        Ok(name)
    }

    /// One element of `resource_errors`.
    fn server_error(&self, span: Span) -> Result<ServerError, Malformed> {
        let mut error = ServerError { name: Span::default(), code: 0, message: Span::default() };
        for field in Fields::of(self.bytes(span)) {
            let field = field?;
            match field.number {
                1 => error.name = self.first_text(Span::of(&field, span.start)?)?,
                2 => {
                    let status = Span::of(&field, span.start)?;
                    for field in Fields::of(self.bytes(status)) {
                        let field = field?;
                        match (field.number, field.value) {
                            // Negative numbers are sign-extended on the wire; the low half is the number.
                            (1, Value::Varint(code)) => error.code = code as i32,
                            (2, _) => error.message = Span::of_text(&field, status.start)?,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(error)
    }
}

impl Item {
    fn bare(body: Body) -> Self {
        let none = Span::default();
        Self { wrapper_name: none, is_wrapped: false, version: none, ttl: None, has_aliases: false, body }
    }
}

impl Span {
    /// Whether there is nothing, as for a field that is not set.
    pub(crate) fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The span of a field with a length, in a part of the message that begins at `base`.
    fn of(field: &Field<'_>, base: u32) -> Result<Self, Malformed> {
        let range = field.range()?;
        // Messages over 4 GiB were refused, so every offset fits.
        Ok(Self { start: base + range.start as u32, length: range.len() as u32 })
    }

    /// The span of a field that is checked to be UTF-8, which `text` relies on.
    fn of_text(field: &Field<'_>, base: u32) -> Result<Self, Malformed> {
        field.text()?;
        Self::of(field, base)
    }
}

/// The first bytes of an `Any` of a type: its type URL, and the key of its value.
fn head(type_url: &str) -> Bytes {
    let mut head = BytesMut::with_capacity(type_url.len() + 8);
    put_text(1, type_url, &mut head);
    head.put_u8(2 << 3 | 2);
    head.freeze()
}

/// The type of a redirect. A locator has no name of its own, so that it is valid only in a wrapper.
const LOCATOR: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource, ResourceError, ResourceName},
        google::{protobuf::Any, rpc::Status},
    };

    const TYPE: &str = "type.googleapis.com/example.Thing";

    fn boxed(type_url: &str, value: impl Into<Bytes>) -> Any {
        Any { type_url: type_url.into(), value: value.into() }
    }

    fn envelope(response: &DiscoveryResponse) -> Envelope {
        Envelope::parse(response.encode_to_vec().into(), false).unwrap()
    }

    #[test]
    fn finds_every_part() {
        let wrapped =
            Resource { name: "w".into(), resource: Some(boxed(TYPE, "body")), ..Default::default() };
        let heartbeat = Resource { name: "h".into(), ..Default::default() };
        let response = DiscoveryResponse {
            version_info: "7".into(),
            type_url: TYPE.into(),
            nonce: "n".into(),
            resources: vec![
                boxed(TYPE, "bare"),
                boxed(WRAPPER, wrapped.encode_to_vec()),
                boxed(WRAPPER, heartbeat.encode_to_vec()),
                boxed("other", "x"),
                boxed(WRAPPER, vec![0x0a, 9]),
            ],
            resource_errors: vec![ResourceError {
                resource_name: Some(ResourceName { name: "e".into(), ..Default::default() }),
                error_detail: Some(Status { code: 5, message: "gone".into(), details: vec![] }),
            }],
            ..Default::default()
        };
        let e = envelope(&response);
        assert_eq!((e.version(), e.type_url(), e.nonce(), e.len()), ("7", TYPE, "n", 5));
        let bodies: Vec<_> = (0..e.len()).map(|i| (e.text(e.item(i).wrapper_name), e.item(i).body)).collect();
        assert!(matches!(bodies[0], ("", Body::Resource(span)) if e.bytes(span) == b"bare"));
        assert!(matches!(bodies[1], ("w", Body::Resource(span)) if e.bytes(span) == b"body"));
        assert!(matches!(bodies[2], ("h", Body::Unset)));
        assert!(
            matches!(bodies[3], ("", Body::Unusable(Unusable::WrongType(span))) if e.text(span) == "other")
        );
        assert!(matches!(bodies[4], ("", Body::Unusable(Unusable::Malformed(_)))));
        let error = e.errors().next().unwrap().unwrap();
        assert_eq!((e.text(error.name), error.code, e.text(error.message)), ("e", 5, "gone"));
    }

    proptest! {
        #[test]
        fn a_bare_resource_is_known_by_its_bytes(
            value in proptest::collection::vec(any::<u8>(), 1..300),
            other in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let resources = vec![boxed(TYPE, value.clone()), boxed("other", value.clone())];
            let response = DiscoveryResponse { type_url: TYPE.into(), resources, ..Default::default() };
            let e = envelope(&response);
            prop_assert!(e.is_bare(0, &value));
            prop_assert_eq!(e.is_bare(0, &other), value == other);
            prop_assert!(!e.is_bare(0, &value[1..]), "the end of it is not all of it");
            prop_assert!(!e.is_bare(1, &value), "it is of another type");
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), delta: bool) {
            if let Ok(e) = Envelope::parse(bytes.into(), delta) {
                for i in 0..e.len() {
                    e.item(i);
                    e.is_bare(i, b"x");
                    e.aliases(i);
                }
                e.errors().for_each(drop);
            }
        }

        #[test]
        fn a_response_cut_short_is_refused_or_holds_less(cut in 0usize..80) {
            let response = DiscoveryResponse {
                version_info: "1".into(),
                type_url: TYPE.into(),
                resources: vec![boxed(TYPE, vec![7; 20])],
                ..Default::default()
            };
            let bytes = response.encode_to_vec();
            let parsed = Envelope::parse(bytes[..cut.min(bytes.len() - 1)].to_vec().into(), false);
            prop_assert!(parsed.is_err() || parsed.is_ok_and(|e| e.type_url().is_empty() || e.len() == 1));
        }
    }
}
