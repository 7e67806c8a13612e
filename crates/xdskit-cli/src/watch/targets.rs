//! The targets on the command line, and the type that their names have.

use std::{path::PathBuf, sync::Arc};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, ValueHint, error::ErrorKind};
use xdskit::tool_support::check_type_url;

use super::target::{Target, TargetType};
use crate::kind::Kind;

/// What to watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Targets {
    /// The targets in their order.
    pub list: Vec<Target>,
    /// The type of all targets, which are names alone then.
    pub(super) type_url: Option<Arc<str>>,
    /// A file with the messages of the type.
    pub(super) proto: Option<PathBuf>,
}

/// The arguments as they were written. What one of them means depends on others.
#[derive(Debug, Args)]
struct Written {
    /// Watches resources of any other type, such as type.googleapis.com/shop.Banner; each TYPE=NAME is a NAME alone then.
    /// Messages are shown as JSON, or as their bytes if neither --proto nor this tool has their type
    #[arg(id = "type_url", long = "type", value_name = "TYPE_URL", allow_hyphen_values = true)]
    type_url: Option<String>,
    /// Decodes the messages of --type by a descriptor set: `protoc --include_imports --descriptor_set_out=PATH` writes one.
    /// It has 16 MiB at most
    #[arg(long, value_name = "PATH", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    proto: Option<PathBuf>,
    /// TYPE is listener, route, cluster, endpoints, scoped-route, virtual-host, secret or runtime; NAME is a name, `*` for
    /// all, a glob for the old-style names of some (`outbound|80|*`), or an xdstp:// glob or list
    #[arg(value_name = "TYPE=NAME")]
    targets: Vec<String>,
}

impl Written {
    /// Parses the targets.
    fn parse(self) -> Result<Targets, String> {
        let Self { type_url, proto, targets } = self;
        match (&type_url, &proto) {
            (Some(type_url), _) => check(type_url)?,
            (None, Some(path)) => {
                return Err(format!(
                    "--proto {:?}: needs --type, whose messages it describes",
                    path.display()
                ));
            }
            (None, None) => {}
        }
        let type_url: Option<Arc<str>> = type_url.map(Arc::from);
        let list = targets.iter().map(|text| Target::parse(text, type_url.as_ref()));
        Ok(Targets { list: list.collect::<Result<_, _>>()?, type_url, proto })
    }
}

/// Checks a type URL.
fn check(type_url: &str) -> Result<(), String> {
    check_type_url(type_url).map_err(|reason| match Kind::from_type_url(type_url) {
        Some(kind) => format!("--type: {reason}; write {}=NAME", TargetType::Kind(kind)),
        None => format!("--type: {reason}"),
    })
}

impl FromArgMatches for Targets {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        // The kinds of errors about single values need the argument, which only the parser can name.
        let invalid = |reason| Error::raw(ErrorKind::ArgumentConflict, reason);
        Written::from_arg_matches(matches)?.parse().map_err(invalid)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Targets {
    fn augment_args(command: Command) -> Command {
        Written::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Written::augment_args_for_update(command)
    }
}
