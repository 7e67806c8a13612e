//! The fields of a cluster, read without copies.

use bytes::Bytes;
use prost::Message;

use super::super::{Invalid, load_balancing::Choice};
use crate::{
    pb::envoy::config::{
        cluster::v3::{self as cluster, cluster::LbConfig},
        core::v3 as core,
    },
    wire::{Field, Fields, Malformed},
};

/// The fields of an encoded `Cluster`: fields that most clusters have are read, messages that few have are only
/// located.
#[derive(Debug)]
pub(super) struct ClusterFields<'a> {
    /// The whole message, whose bytes decoded parts share.
    whole: &'a Bytes,
    /// The name; empty if there is none.
    pub(super) name: &'a str,
    /// The discovery type, from the oneof of `type` and `cluster_type`.
    pub(super) discovery: Option<Discovery<'a>>,
    /// The parsed `EdsClusterConfig`, which most clusters have.
    pub(super) eds_config: Option<EdsFields<'a>>,
    /// The number of the older field, which counts only without `load_balancing_policy`.
    lb_policy: i32,
    /// The `ClusterLoadAssignment` with the host of a logical DNS cluster.
    pub(super) load_assignment: Option<&'a [u8]>,
    /// An encoded `CircuitBreakers`.
    pub(super) circuit_breakers: Option<&'a [u8]>,
    /// An encoded `OutlierDetection`.
    pub(super) outlier_detection: Option<&'a [u8]>,
    /// Settings for the older field `lb_policy`, as are those of `least_request` and `maglev`.
    ring_hash: Option<&'a [u8]>,
    least_request: Option<&'a [u8]>,
    maglev: Option<&'a [u8]>,
    /// An encoded `TransportSocket`, with the TLS settings.
    pub(super) transport_socket: Option<&'a [u8]>,
    /// Whether there is a `TransportSocketMatch`, which rejects the cluster (C19).
    pub(super) has_socket_matches: bool,
    /// An encoded `Metadata`.
    pub(super) metadata: Option<&'a [u8]>,
    /// An encoded `CommonLbConfig`, with the health states of sessions.
    pub(super) common_lb_config: Option<&'a [u8]>,
    /// An encoded `LoadBalancingPolicy`: the list that takes precedence over `lb_policy`.
    load_balancing_policy: Option<&'a [u8]>,
    /// An encoded `ConfigSource` of load reports.
    pub(super) lrs_server: Option<&'a [u8]>,
    /// A `TypedExtensionConfig` with HTTP options.
    pub(super) upstream_config: Option<&'a [u8]>,
    /// The names in `lrs_report_endpoint_metrics`.
    pub(super) reported_metrics: Vec<&'a str>,
}

/// The field that determines the source of the endpoints.
#[derive(Debug, Clone, Copy)]
pub(super) enum Discovery<'a> {
    /// The number of the discovery type.
    Type(i32),
    /// A `CustomClusterType`.
    Custom(&'a [u8]),
}

/// The fields of an encoded `EdsClusterConfig`.
#[derive(Debug, Default)]
pub(super) struct EdsFields<'a> {
    /// The name of the endpoints; empty if it is that of the cluster.
    pub(super) service_name: &'a str,
    /// A `ConfigSource`.
    pub(super) source: Option<&'a [u8]>,
}

impl<'a> ClusterFields<'a> {
    /// No fields.
    pub(super) fn new(whole: &'a Bytes) -> Self {
        Self {
            whole,
            name: "",
            discovery: None,
            eds_config: None,
            lb_policy: 0,
            load_assignment: None,
            circuit_breakers: None,
            outlier_detection: None,
            ring_hash: None,
            least_request: None,
            maglev: None,
            transport_socket: None,
            has_socket_matches: false,
            metadata: None,
            common_lb_config: None,
            load_balancing_policy: None,
            lrs_server: None,
            upstream_config: None,
            reported_metrics: Vec::new(),
        }
    }

    /// Reads all fields of the message.
    /// A message that is there twice is an error, which leaves the cluster to a decoder (`parts::read`): that merges both.
    pub(super) fn read(&mut self) -> Result<(), Invalid> {
        for field in Fields::of(self.whole) {
            self.add(field?)?;
        }
        Ok(())
    }

    /// Reads a field.
    fn add(&mut self, field: Field<'a>) -> Result<(), Invalid> {
        match field.number {
            1 => self.name = field.text()?,
            2 | 38 => self.add_discovery(&field)?,
            3 => {
                // Of the parsed form there are no bytes: any others make `once` reject a second field.
                let mut eds = self.eds_config.is_some().then_some(&[][..]);
                field.once(&mut eds)?;
                self.eds_config = eds.map(EdsFields::read).transpose()?;
            }
            6 => self.lb_policy = field.varint()? as i32,
            10 => field.once(&mut self.circuit_breakers)?,
            19 => field.once(&mut self.outlier_detection)?,
            23 => field.once(&mut self.ring_hash)?,
            24 => field.once(&mut self.transport_socket)?,
            25 => field.once(&mut self.metadata)?,
            27 => field.once(&mut self.common_lb_config)?,
            // Not used, but the message must be well-formed.
            29 => drop(core::HttpProtocolOptions::decode(field.bytes()?)?),
            33 => field.once(&mut self.load_assignment)?,
            37 => field.once(&mut self.least_request)?,
            41 => field.once(&mut self.load_balancing_policy)?,
            42 => field.once(&mut self.lrs_server)?,
            43 => {
                cluster::cluster::TransportSocketMatch::decode(field.bytes()?)?;
                // The presence is enough: `Cluster::of` rejects the cluster (C19).
                self.has_socket_matches = true;
            }
            48 => field.once(&mut self.upstream_config)?,
            52 => field.once(&mut self.maglev)?,
            57 => self.reported_metrics.push(field.text()?),
            _ => {}
        }
        Ok(())
    }

    /// Adds a field of the oneof. If a message occurs beside another field of it, a full decoder determines which one
    /// counts.
    fn add_discovery(&mut self, field: &Field<'a>) -> Result<(), Malformed> {
        // Of repeated numbers the last one counts; any other repetition is left to the decoder.
        self.discovery = match (&self.discovery, field.number) {
            (None | Some(Discovery::Type(_)), 2) => Some(Discovery::Type(field.varint()? as i32)),
            (None, _) => Some(Discovery::Custom(field.bytes()?)),
            (Some(Discovery::Type(_) | Discovery::Custom(_)), _) => return Err(field.again()),
        };
        Ok(())
    }

    /// Decodes the message of a field; its `bytes` fields are not copied.
    /// Inlined, so that an absent field costs a comparison; the decoders themselves are not.
    #[inline(always)]
    pub(super) fn decode<M: Message + Default>(&self, field: Option<&[u8]>) -> Result<Option<M>, Invalid> {
        match field {
            None => Ok(None),
            Some(bytes) => self.decode_some(bytes).map(Some),
        }
    }

    /// Decodes a message within the cluster, whose bytes it shares.
    #[inline(never)]
    fn decode_some<M: Message + Default>(&self, bytes: &[u8]) -> Result<M, Invalid> {
        Ok(M::decode(self.whole.slice_ref(bytes))?)
    }

    /// The metadata, and the message that it is a part of.
    pub(super) fn metadata(&self) -> (Option<&'a [u8]>, &'a Bytes) {
        (self.metadata, self.whole)
    }

    /// Whether the older field names the only policy with settings in the `CommonLbConfig`.
    fn is_legacy_maglev(&self) -> bool {
        self.lb_policy == cluster::cluster::LbPolicy::Maglev as i32 && self.load_balancing_policy.is_none()
    }

    /// Returns the load balancing settings.
    /// Settings of two policies are an error: the decoder that reads the message next keeps the last of the oneof.
    pub(super) fn choice(&self) -> Result<Choice, Invalid> {
        let config = match (self.ring_hash, self.least_request, self.maglev) {
            (None, None, None) => None,
            (config @ Some(_), None, None) => self.decode(config)?.map(LbConfig::RingHashLbConfig),
            (None, config @ Some(_), None) => self.decode(config)?.map(LbConfig::LeastRequestLbConfig),
            (None, None, config @ Some(_)) => self.decode(config)?.map(LbConfig::MaglevLbConfig),
            // Never reported: the bytes are then decoded and encoded again, which leaves one of them.
            _ => return Err(Invalid::new("only the last of several policies counts")),
        };
        Ok(Choice {
            list: self.decode(self.load_balancing_policy)?,
            legacy: self.lb_policy,
            config,
            common: self.decode(self.common_lb_config.filter(|_| self.is_legacy_maglev()))?,
            is_of_custom_type: matches!(self.discovery, Some(Discovery::Custom(_))),
        })
    }
}

impl<'a> EdsFields<'a> {
    /// Reads an EDS configuration.
    fn read(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let mut fields = Self::default();
        for field in Fields::of(bytes) {
            let field = field?;
            match field.number {
                1 => field.once(&mut fields.source)?,
                2 => fields.service_name = field.text()?,
                _ => {}
            }
        }
        Ok(fields)
    }
}
