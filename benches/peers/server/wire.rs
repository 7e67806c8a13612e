//! As much of the protocol's messages as the server needs: requests are looked through without being taken apart, and
//! responses are put together from parts that were encoded before.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// The two types of resources that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Clusters,
    Endpoints,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Clusters, Self::Endpoints];

    pub(crate) fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Endpoints => "endpoints",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The variant of the protocol that a stream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Sotw,
    Delta,
}

impl Variant {
    /// The numbers of the fields of its requests.
    fn fields(self) -> Fields {
        match self {
            Self::Sotw => Fields { names: 3, type_url: 4, nonce: 5, error: 6 },
            Self::Delta => Fields { names: 3, type_url: 2, nonce: 6, error: 7 },
        }
    }
}

struct Fields {
    names: u32,
    type_url: u32,
    nonce: u32,
    error: u32,
}

/// What a request says, but for its names.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) kind: Option<Kind>,
    /// The number of the response that it answers; 0 for none.
    pub(crate) nonce: u64,
    /// How many names it has.
    pub(crate) names: usize,
    /// Why it rejects that response.
    pub(crate) error: Option<Bytes>,
}

impl Request {
    /// Looks through a request; `None` if it is none.
    pub(crate) fn read(message: &Bytes, variant: Variant) -> Option<Self> {
        let fields = variant.fields();
        let mut request = Self::default();
        each_field(message, |field, value| {
            if field == fields.names {
                request.names += 1;
            } else if field == fields.type_url {
                request.kind = Kind::ALL.into_iter().find(|kind| kind.type_url().as_bytes() == value);
            } else if field == fields.nonce {
                request.nonce = str::from_utf8(value).ok().and_then(|nonce| nonce.parse().ok()).unwrap_or(0);
            } else if field == fields.error {
                request.error = Some(Bytes::copy_from_slice(value));
            }
        })?;
        Some(request)
    }
}

/// Calls back for each name of a request.
pub(crate) fn each_name(message: &Bytes, variant: Variant, mut then: impl FnMut(&[u8])) {
    let names = variant.fields().names;
    each_field(message, |field, value| {
        if field == names {
            then(value);
        }
    });
}

/// Calls back for each field that has a length; `None` if the message is torn.
fn each_field(message: &Bytes, mut then: impl FnMut(u32, &[u8])) -> Option<()> {
    let mut rest = &message[..];
    while !rest.is_empty() {
        let (field, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (value, after) = rest.split_at_checked(length)?;
            then(field, value);
            rest = after;
        } else {
            skip_field(wire_type, field, &mut rest, Default::default()).ok()?;
        }
    }
    Some(())
}

/// A resource as it stands in a response of the variant: the field, with everything in it.
pub(crate) fn entry(variant: Variant, kind: Kind, name: &str, version: u64, resource: &[u8]) -> Bytes {
    let mut any = BytesMut::with_capacity(resource.len() + 80);
    put(&mut any, 1, kind.type_url().as_bytes());
    put(&mut any, 2, resource);
    let mut entry = BytesMut::with_capacity(any.len() + name.len() + 32);
    match variant {
        Variant::Sotw => put(&mut entry, 2, &any),
        Variant::Delta => {
            let mut wrapped = BytesMut::with_capacity(any.len() + name.len() + 24);
            put(&mut wrapped, 1, version.to_string().as_bytes());
            put(&mut wrapped, 2, &any);
            put(&mut wrapped, 3, name.as_bytes());
            put(&mut entry, 2, &wrapped);
        }
    }
    entry.freeze()
}

/// A response of such entries, with gRPC's prefix: in parts, so that the entries need not be copied.
pub(crate) fn response(variant: Variant, kind: Kind, version: u64, nonce: u64, entries: Bytes) -> [Bytes; 3] {
    let mut tail = BytesMut::new();
    match variant {
        Variant::Sotw => {
            put(&mut tail, 1, version.to_string().as_bytes());
            put(&mut tail, 4, kind.type_url().as_bytes());
            put(&mut tail, 5, nonce.to_string().as_bytes());
        }
        Variant::Delta => {
            put(&mut tail, 4, kind.type_url().as_bytes());
            put(&mut tail, 5, nonce.to_string().as_bytes());
        }
    }
    let mut prefix = BytesMut::with_capacity(5);
    prefix.put_u8(0);
    prefix.put_u32(u32::try_from(entries.len() + tail.len()).expect("a response is shorter than 4 GiB"));
    [prefix.freeze(), entries, tail.freeze()]
}

fn put(into: &mut BytesMut, field: u32, value: &[u8]) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(value.len() as u64, into);
    into.put_slice(value);
}
