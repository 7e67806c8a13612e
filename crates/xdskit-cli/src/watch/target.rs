//! The targets of `watch`: on the command line, and in commands on standard input.

use std::{fmt, str::FromStr, sync::Arc};

use xdskit::name::ResourceName;

use crate::{filter::Glob, kind::Kind};

/// A target as it was written: TYPE=NAME, or NAME alone if `--type` has the type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The type of the resources.
    pub ty: TargetType,
    /// A name, that of a collection, `*` for all, or a glob that selects some of all by their names.
    pub name: Arc<str>,
    /// The subscription.
    subscribed: Subscribed,
}

/// A resource type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetType {
    /// One of the protocol.
    Kind(Kind),
    /// Any other, by its type URL.
    Url(Arc<str>),
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
        Self { ty: TargetType::Kind(kind), name: name.into(), subscribed: Subscribed::Name }
    }

    /// Parses NAME of a type URL, or TYPE=NAME if there is none.
    ///
    /// # Errors
    /// The text has another form.
    pub(super) fn parse(text: &str, type_url: Option<&Arc<str>>) -> Result<Self, String> {
        match type_url {
            Some(_) if text.is_empty() => Err("a name is empty; write '*' for all resources".to_owned()),
            Some(type_url) => Self::of(TargetType::Url(type_url.clone()), text),
            None => text.parse(),
        }
    }

    /// The resources of a name, which is not empty.
    fn of(ty: TargetType, name: &str) -> Result<Self, String> {
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
        Ok(Self { ty, name: name.into(), subscribed })
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
        Self::of(TargetType::Kind(kind.parse()?), name)
    }
}

impl TargetType {
    /// The name in the titles of resources.
    pub(super) fn title(&self) -> &str {
        match self {
            Self::Kind(kind) => kind.as_str(),
            Self::Url(type_url) => message_of(type_url),
        }
    }

    /// The type of the protocol, if it is one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Kind(kind) => Some(*kind),
            Self::Url(_) => None,
        }
    }
}

impl fmt::Display for TargetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind(kind) => kind.as_str(),
            Self::Url(type_url) => type_url,
        })
    }
}

/// The full name of the message of a type URL.
pub(super) fn message_of(type_url: &str) -> &str {
    type_url.rsplit_once('/').map_or(type_url, |(_, message)| message)
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
        write!(f, "{}={}", self.ty, self.name)
    }
}

impl Command {
    /// Parses a line; `None` if it is empty. Targets are names alone if there is a type URL.
    pub(super) fn parse(line: &[u8], type_url: Option<&Arc<str>>) -> Result<Option<Self>, String> {
        let Ok(line) = str::from_utf8(line) else {
            return Err(format!("{:?} is not UTF-8", String::from_utf8_lossy(line)));
        };
        let line = line.trim();
        let target = |rest: &str| Target::parse(rest.trim_start(), type_url);
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match verb {
            "" => Ok(None),
            "watch" => Ok(Some(Self::Watch(target(rest)?))),
            "unwatch" => Ok(Some(Self::Unwatch(target(rest)?))),
            "quit" if rest.is_empty() => Ok(Some(Self::Quit)),
            _ => {
                let target = if type_url.is_some() { "NAME" } else { "TYPE=NAME" };
                Err(format!("unknown command {line:?}; commands are watch {target}, unwatch {target}, quit"))
            }
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
            assert_eq!((target.ty.kind(), target.to_string()), (Some(kind), typed));
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
            assert_eq!(Command::parse(line.as_bytes(), None), Ok(command), "{line:?}");
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
            assert!(Command::parse(line.as_bytes(), None).is_err(), "{line:?}");
        }
        assert!(Command::parse(b"watch cluster=\xff", None).is_err());
    }

    #[test]
    fn names_of_a_type_url_are_whole_arguments() {
        let type_url: Arc<str> = "type.googleapis.com/shop.Banner".into();
        let parse = |text: &str| Target::parse(text, Some(&type_url));
        for (name, subscribed, many) in [
            ("sale", "sale", false),
            ("cluster=sale", "cluster=sale", false),
            ("*", "*", true),
            ("sale-*", "*", true),
            ("sale\\*", "sale*", false),
        ] {
            let target = parse(name).expect(name);
            assert_eq!((target.subscribed(), target.is_many()), (subscribed, many), "{name}");
            assert_eq!(target.to_string(), format!("type.googleapis.com/shop.Banner={name}"));
            assert_eq!((target.ty.title(), target.ty.kind()), ("shop.Banner", None));
            let command = Command::parse(format!("watch {name}").as_bytes(), Some(&type_url));
            assert_eq!(command, Ok(Some(Command::Watch(target))));
        }
        assert!(parse("").is_err());
        let error = Command::parse(b"look", Some(&type_url)).expect_err("no command");
        assert!(error.ends_with("commands are watch NAME, unwatch NAME, quit"), "{error}");
    }
}
