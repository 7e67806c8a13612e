//! The builder of the servers of an authority.

use std::{collections::BTreeMap, sync::Arc};

use crate::config::{ConfigSource, PathSource, ServerBuilder, Sources, ValidationError};

/// A builder of a source: a [server](ServerBuilder) or a [file](PathSource), both of which convert to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SourceBuilder {
    /// A management server.
    Server(Box<ServerBuilder>),
    /// A file.
    Path(PathSource),
}

/// The sources of an authority, or of the bootstrap as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct SourcesBuilder {
    /// For all types without sources of their own.
    pub(super) all: Vec<ServerBuilder>,
    /// For single types, by type URL.
    by_type: BTreeMap<String, Vec<SourceBuilder>>,
}

impl From<ServerBuilder> for SourceBuilder {
    fn from(server: ServerBuilder) -> Self {
        Self::Server(Box::new(server))
    }
}

impl From<PathSource> for SourceBuilder {
    fn from(file: PathSource) -> Self {
        Self::Path(file)
    }
}

impl SourceBuilder {
    /// `None` if and only if an error was added.
    fn build_at(self, path: &str, problems: &mut Vec<ValidationError>) -> Option<ConfigSource> {
        match self {
            Self::Server(server) => {
                server.build_at(path, problems).map(|server| ConfigSource::Server(Arc::new(server)))
            }
            Self::Path(file) => match file.check() {
                Ok(()) => Some(ConfigSource::Path(Arc::new(file))),
                Err((field, reason)) => {
                    problems.push(ValidationError::new(format!("{path}.path_config_source.{field}"), reason));
                    None
                }
            },
        }
    }
}

impl SourcesBuilder {
    /// Adds a source of a type.
    pub(super) fn add(&mut self, type_url: &str, source: SourceBuilder) {
        self.by_type.entry(type_url.to_owned()).or_default().push(source);
    }

    /// Whether there are no sources at all.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_type.is_empty()
    }

    /// `prefix` is the path of the owner of the sources, with its dot.
    pub(super) fn build(self, prefix: &str, problems: &mut Vec<ValidationError>) -> Sources {
        // Only types have files as sources: a file contains resources of one type.
        let all = self.all.into_iter().map(SourceBuilder::from).collect();
        let all = build(all, &format!("{prefix}xds_servers"), problems);
        let by_type = self.by_type.into_iter().map(|(type_url, own)| {
            let path = format!("{prefix}type_sources[{:?}]", short_type_url(&type_url));
            let own = build(own, &path, problems);
            (type_url, own)
        });
        Sources::new(all, by_type.collect())
    }
}

/// Builds the sources of a list.
fn build(sources: Vec<SourceBuilder>, path: &str, problems: &mut Vec<ValidationError>) -> Vec<ConfigSource> {
    let sources = sources.into_iter().enumerate();
    sources.filter_map(|(index, source)| source.build_at(&format!("{path}[{index}]"), problems)).collect()
}

/// A type URL without its usual prefix, for display.
fn short_type_url(type_url: &str) -> &str {
    type_url.strip_prefix(PREFIX).unwrap_or(type_url)
}

/// Adds the prefix of type URLs to a message type without it.
pub(crate) fn full_type_url(name: &str) -> String {
    match name.contains('/') {
        true => name.to_owned(),
        false => format!("{PREFIX}{name}"),
    }
}

/// The usual prefix.
const PREFIX: &str = "type.googleapis.com/";
