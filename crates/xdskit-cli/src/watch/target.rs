//! The targets of `watch`: on the command line, and in commands on standard input.

use std::{fmt, str::FromStr, sync::Arc};

use xdskit::name::ResourceName;

use crate::{filter::Glob, kind::Kind};

/// A target as it was written: TYPE=NAME.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The type of the resources.
    pub kind: Kind,
    /// A name, that of a collection, `*` for all, or a glob that selects some of all by their names.
    pub name: Arc<str>,
    /// The subscription.
    subscribed: Subscribed,
}

/// The name in the subscription, and which of its resources are shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subscribed {
    /// The name as written.
    Name,
    /// A name that was written with backslashes before `*` or `?`.
    Unescaped(Arc<str>),
    /// All resources of the type, of which the matching ones are shown.
    Matching(Glob),
}

/// A line of standard input.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Begins a watch.
    Watch(Target),
    /// Ends a watch.
    Unwatch(Target),
    /// Ends the tool.
    Quit,
}

impl Target {
    /// The resource of exactly this name.
    pub fn named(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.into(), subscribed: Subscribed::Name }
    }

    /// Whether there may be many resources: all of the type, or the members of a collection.
    pub fn is_many(&self) -> bool {
        let is_collection = |name: ResourceName| {
            name.is_collection() && name.directives().is_none_or(|directives| directives.entry().is_none())
        };
        let name = self.subscribed();
        name == "*" || ResourceName::parse(name).is_ok_and(is_collection)
    }

    /// The name in the subscription.
    pub fn subscribed(&self) -> &str {
        match &self.subscribed {
            Subscribed::Name => &self.name,
            Subscribed::Unescaped(name) => name,
            Subscribed::Matching(_) => "*",
        }
    }

    /// Whether a resource of the subscription is to be shown.
    pub fn matches(&self, name: &str) -> bool {
        match &self.subscribed {
            Subscribed::Name | Subscribed::Unescaped(_) => true,
            Subscribed::Matching(glob) => glob.matches(name),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    /// The first `=` is the separator, since names may contain others.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not of the form TYPE=NAME{}", example(text)))?;
        if name.is_empty() {
            return Err(format!("{text:?} has no name after the type"));
        }
        let kind = kind.parse()?;
        // In `xdstp:` names, `*` belongs to the collection, and `?` begins the context parameters.
        let is_glob = name != "*" && !name.starts_with("xdstp:") && name.contains(['*', '?']);
        let glob = is_glob.then(|| name.parse::<Glob>()).transpose()?;
        let subscribed = match glob {
            None => Subscribed::Name,
            Some(glob) => match glob.literal() {
                Some(name) => Subscribed::Unescaped(name.into()),
                None => Subscribed::Matching(glob),
            },
        };
        Ok(Self { kind, name: name.into(), subscribed })
    }
}

/// The correction of a type or a name alone.
fn example(text: &str) -> String {
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == text);
    match kind {
        Some(kind) => format!(", such as '{}=*' for all", kind.as_str()),
        None => format!(", such as cluster={text}"),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.as_str(), self.name)
    }
}

impl Command {
    /// Parses a line; `None` if it is empty.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_equals_sign_ends_the_type() {
        assert_eq!("cluster=a=b".parse(), Ok(Target::named(Kind::Cluster, "a=b")));
        assert_eq!("scoped-route=*".parse(), Ok(Target::named(Kind::ScopedRoute, "*")));
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
            ("shop/*", true),
            ("shop?", true),
            ("shop\\*", false),
            ("shop", false),
        ] {
            let target: Target = format!("cluster={name}").parse().expect(name);
            assert_eq!(target.is_many(), many, "{name}");
        }
    }

    #[test]
    fn a_glob_of_old_style_names_subscribes_to_all() {
        for (name, subscribed, matched, other) in [
            ("outbound|80|*", "*", "outbound|80||shop", "inbound|80||shop"),
            ("shop-?", "*", "shop-1", "shop-10"),
            ("*", "*", "shop", ""),
            ("a\\*", "a*", "a*", ""),
            (
                "xdstp://a/envoy.config.cluster.v3.Cluster/b*",
                "xdstp://a/envoy.config.cluster.v3.Cluster/b*",
                "x",
                "",
            ),
        ] {
            let target: Target = format!("cluster={name}").parse().expect(name);
            assert_eq!(target.subscribed(), subscribed);
            assert!(target.matches(matched), "{matched} by {name}");
            assert!(other.is_empty() || !target.matches(other), "{other} by {name}");
            assert_eq!(target.to_string(), format!("cluster={name}"));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("shop", "shop"),
            ("cluster=", "cluster="),
            ("clusters=shop", "clusters"),
            ("Cluster=shop", "Cluster"),
            ("clusters=shop", "did you mean cluster?"),
            ("listner=shop", "did you mean listener?"),
            ("shop", "cluster=shop"),
            ("listener", "'listener=*'"),
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
        let shop = Target::named(Kind::Cluster, "shop");
        for (line, command) in [
            ("watch cluster=shop\n", Some(Command::Watch(shop.clone()))),
            ("  unwatch \t cluster=shop \r\n", Some(Command::Unwatch(shop))),
            ("watch secret=two words", Some(Command::Watch(Target::named(Kind::Secret, "two words")))),
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
