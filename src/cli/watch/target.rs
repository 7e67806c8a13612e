//! What `watch` is asked to watch: on the command line, and by the commands that it reads.

use std::{fmt, str::FromStr, sync::Arc};

use crate::name::ResourceName;

/// What is watched, as it was typed: TYPE=NAME.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// A name, that of a collection, or `*` for all.
    pub(crate) name: Arc<str>,
}

/// A type of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Listener,
    Route,
    Cluster,
    Endpoints,
    ScopedRoute,
    VirtualHost,
    Secret,
    Runtime,
}

/// A line of the standard input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Watch(Target),
    Unwatch(Target),
    Quit,
}

impl Target {
    /// Whether many resources are wanted: all of the type, or the members of a collection.
    pub(crate) fn is_many(&self) -> bool {
        let is_collection = |name: ResourceName| {
            name.is_collection() && name.directives().is_none_or(|directives| directives.entry().is_none())
        };
        &*self.name == "*" || ResourceName::parse(&self.name).is_ok_and(is_collection)
    }
}

impl FromStr for Target {
    type Err = String;

    /// The first `=` separates: names may have more.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form TYPE=NAME"))?;
        if name.is_empty() {
            return Err(format!("{text:?} has no name after the type"));
        }
        Ok(Self { kind: kind.parse()?, name: name.into() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.as_str(), self.name)
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Listener,
        Self::Route,
        Self::Cluster,
        Self::Endpoints,
        Self::ScopedRoute,
        Self::VirtualHost,
        Self::Secret,
        Self::Runtime,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Cluster => "cluster",
            Self::Endpoints => "endpoints",
            Self::ScopedRoute => "scoped-route",
            Self::VirtualHost => "virtual-host",
            Self::Secret => "secret",
            Self::Runtime => "runtime",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("unknown type {text:?}; types are {}", Self::ALL.map(Self::as_str).join(", "));
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(unknown)
    }
}

impl Command {
    /// Reads a line; `None` if there is nothing on it.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, String> {
        let Ok(line) = str::from_utf8(line) else {
            return Err(format!("{:?} is not UTF-8", String::from_utf8_lossy(line)));
        };
        let line = line.trim();
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match verb {
            "" => Ok(None),
            "watch" => Ok(Some(Self::Watch(rest.trim_start().parse()?))),
            "unwatch" => Ok(Some(Self::Unwatch(rest.trim_start().parse()?))),
            "quit" if rest.is_empty() => Ok(Some(Self::Quit)),
            _ => Err(format!(
                "unknown command {line:?}; commands are watch TYPE=NAME, unwatch TYPE=NAME, quit"
            )),
        }
    }
}

pub(crate) const USAGE: &str = "\
Prints what a management server sends, on each change.

usage: watch --bootstrap PATH [--protocol sotw|delta] [--resource-timeout SECONDS] [--json] [TYPE=NAME ...]

  TYPE                         listener route cluster endpoints scoped-route virtual-host secret runtime
  NAME                         a name, old-style or xdstp://, an xdstp:// glob or list, or * for all
  --bootstrap PATH             a bootstrap, in gRPC's format or in Envoy's
  --protocol sotw|delta        state of the world, the default, or incremental, where the bootstrap does not say it
  --resource-timeout SECONDS   how long a server may take before a resource counts as non-existent (15)
  --json                       one JSON object a line instead of text for people

Commands are read from the standard input, one a line: watch TYPE=NAME, unwatch TYPE=NAME, quit.
RUST_LOG=debug shows what the client does.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Kind, name: &str) -> Target {
        Target { kind, name: name.into() }
    }

    #[test]
    fn the_first_equals_sign_ends_the_type() {
        assert_eq!("cluster=a=b".parse(), Ok(target(Kind::Cluster, "a=b")));
        assert_eq!("scoped-route=*".parse(), Ok(target(Kind::ScopedRoute, "*")));
    }

    #[test]
    fn collections_are_known_by_their_names() {
        for (name, many) in [
            ("*", true),
            ("xdstp://a/envoy.config.cluster.v3.Cluster/shop/*", true),
            ("xdstp://a/envoy.config.cluster.v3.ClusterCollection/shop", true),
            ("xdstp://a/envoy.config.cluster.v3.ClusterCollection/shop#entry=cart", false),
            ("xdstp://a/envoy.config.cluster.v3.Cluster/shop", false),
            ("xdstp://a/*", false),
            ("shop/*", false),
        ] {
            assert_eq!(target(Kind::Cluster, name).is_many(), many, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("shop", "shop"),
            ("cluster=", "cluster="),
            ("clusters=shop", "clusters"),
            ("Cluster=shop", "Cluster"),
        ] {
            let error = text.parse::<Target>().expect_err(text);
            assert!(error.contains(named), "{named:?} is not in {error:?} of {text:?}");
        }
    }

    #[test]
    fn targets_are_shown_as_typed() {
        for kind in Kind::ALL {
            let typed = format!("{}=xdstp://a/b?c=d", kind.as_str());
            let target: Target = typed.parse().expect("a target");
            assert_eq!((target.kind, target.to_string()), (kind, typed));
        }
    }

    #[test]
    fn commands() {
        let shop = target(Kind::Cluster, "shop");
        for (line, command) in [
            ("watch cluster=shop\n", Some(Command::Watch(shop.clone()))),
            ("  unwatch \t cluster=shop \r\n", Some(Command::Unwatch(shop))),
            ("watch secret=two words", Some(Command::Watch(target(Kind::Secret, "two words")))),
            ("quit", Some(Command::Quit)),
            ("", None),
            (" \n", None),
        ] {
            assert_eq!(Command::parse(line.as_bytes()), Ok(command), "{line:?}");
        }
        for line in [
            "watch",
            "watch shop",
            "watch cluster=",
            "unwatch x=y",
            "Quit",
            "quit now",
            "help",
            "watchcluster=a",
        ] {
            assert!(Command::parse(line.as_bytes()).is_err(), "{line:?}");
        }
        assert!(Command::parse(b"watch cluster=\xff").is_err());
    }
}
