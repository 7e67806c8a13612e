//! The table of `Client::status` for people. All of its text that comes from servers is escaped, since it goes to terminals and
//! logs, and cut, since names and versions have no limit.

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, SystemTime},
};

use super::{ClientStatus, LastLoadReport, LoadReportStatus, ResourceStatus, ServerStatus};
use crate::{
    error::shortened,
    escape::{Escaped, write_columns},
    lrs::LoadStreamState,
    protocol::ConnectionState,
};

impl fmt::Display for ClientStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client {:?}", &*self.scope)?;
        writeln!(f, ", node {:?}", &*self.node_id)?;
        for server in &self.servers {
            writeln!(f, "{server}")?;
        }
        for reports in &self.load_reports {
            writeln!(f, "{reports}")?;
        }
        if self.resources.is_empty() {
            return f.write_str("No resources are watched.");
        }
        let rows: Vec<_> = self.resources.iter().map(|resource| self.row(resource)).collect();
        write_table(f, &rows)?;
        for resource in &self.resources {
            for part in resource.remarks.left_out() {
                write!(f, "\n- {} is used without a part: {part}", named(&resource.name))?;
            }
        }
        for resource in &self.resources {
            let Some(error) = &resource.error else { continue };
            write!(f, "\n! {}", shortened(&error.details.to_string(), LONGEST_ERROR))?;
            write_occasion(f, error.version.as_str(), &self.age(error.at))?;
        }
        Ok(())
    }
}

impl ClientStatus {
    /// One line of a resource.
    fn row(&self, resource: &ResourceStatus) -> Row {
        [
            Escaped(&resource.name).to_string(),
            resource.state.to_string(),
            if resource.is_initial { "(initial)".into() } else { Escaped(&resource.version).to_string() },
            type_name(resource.type_url).into(),
            resource.last_updated.map(|at| self.age(at)).unwrap_or_default(),
        ]
    }

    /// The age of an event at the time of this status.
    fn age(&self, at: SystemTime) -> String {
        age(at, self.taken_at)
    }
}

impl fmt::Display for LoadReportStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            LoadStreamState::Closed => "no stream",
            LoadStreamState::Connecting => "connecting",
            LoadStreamState::Unanswered => "not requested by the server",
            LoadStreamState::Reporting => "sent",
            LoadStreamState::BackingOff => "waiting to connect again",
        };
        write!(f, "Load reports to {}: {state}", Escaped(&self.uri))?;
        if let Some(interval) = self.interval {
            write!(f, " each {interval:?}")?;
        }
        match (self.interval, self.wanted_clusters) {
            (Some(_), Some(number)) => write!(f, ", of {number} named clusters")?,
            (Some(_), None) => f.write_str(", of all clusters")?,
            (None, _) => {}
        }
        if let Some(LastLoadReport { clusters, bytes, .. }) = self.last_report {
            write!(f, "; the last of {clusters} clusters in {bytes} bytes")?;
        }
        Ok(())
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.connection {
            ConnectionState::Idle => "idle",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::BackingOff => "waiting to connect again",
        };
        write!(f, "Server {}", Escaped(&self.uri))?;
        if let Some(type_url) = self.type_url {
            write!(f, " for {}", type_name(type_url))?;
        }
        write!(f, ": {state}")?;
        if let Some(identifier) = &self.identifier {
            write!(f, ", {}", Escaped(identifier))?;
        }
        if let Some(system_version) = &self.system_version {
            write!(f, ", version {}", Escaped(system_version))?;
        }
        match &self.error {
            Some(error) => write!(f, "; {}", Escaped(shortened(error, LONGEST_ERROR))),
            None => Ok(()),
        }
    }
}

/// The cells of a resource: its name, status, version and type, and its age.
pub(crate) type Row = [String; 5];

/// Writes the rows below the column names, without the end of the last line.
pub(crate) fn write_table(f: &mut impl fmt::Write, rows: &[Row]) -> fmt::Result {
    write_columns(f, &HEAD, rows)
}

/// Writes the version and the age of the failed update, after its error.
pub(crate) fn write_occasion(f: &mut impl fmt::Write, version: &str, age: &str) -> fmt::Result {
    if version.is_empty() {
        write!(f, " ({age})")
    } else {
        write!(f, " (version {}, {age})", Escaped(shortened(version, LONGEST_VERSION)))
    }
}

/// The type's name in a type URL.
pub(crate) fn type_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

/// The time since an event.
pub(crate) fn age(at: SystemTime, now: SystemTime) -> String {
    let age = now.duration_since(at).unwrap_or(Duration::ZERO).as_secs();
    match age {
        0..60 => format!("{age} s ago"),
        60..3600 => format!("{} min ago", age / 60),
        3600..86400 => format!("{} h ago", age / 3600),
        86400.. => format!("{} d ago", age / 86400),
    }
}

/// A name of another party.
fn named(name: &str) -> Escaped<Cow<'_, str>> {
    Escaped(shortened(name, LONGEST_NAME))
}

/// The longest error in the table, in bytes; the middle of a longer one is left out.
pub(crate) const LONGEST_ERROR: usize = 2048;

/// The longest version behind an error, in bytes.
const LONGEST_VERSION: usize = 200;

/// The longest name before a remark, in bytes; names in the rows are shown in full.
const LONGEST_NAME: usize = 200;

/// The columns of `grpcdebug`.
const HEAD: [&str; 5] = ["Name", "Status", "Version", "Type", "LastUpdated"];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::UpdateError, *};
    use crate::{
        cache::ResourceState,
        error::{Blame, Code, Subject, WatchError},
        resource::{Cluster, Remarks, Resource, Version},
    };

    /// A width in a format string is a `u16`, and names of servers may be longer.
    #[test]
    fn a_status_can_be_shown_whatever_the_length_of_its_texts() {
        let long = "é".repeat(1 << 20);
        let (now, name): (_, Arc<str>) = (SystemTime::UNIX_EPOCH, long.as_str().into());
        let about = Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: name.clone() };
        let details = WatchError::new(Code::InvalidArgument, Blame::Peer, about, long.clone());
        let version = Version::from(long.as_str());
        let resource = ResourceStatus {
            type_url: Cluster::TYPE_URL,
            name,
            state: ResourceState::Nacked,
            version: version.clone(),
            last_updated: Some(now),
            bytes: None,
            error: Some(UpdateError { version, at: now, details }),
            remarks: Remarks::default(),
            is_initial: false,
        };
        let server = ServerStatus {
            uri: "http://127.0.0.1:1".into(),
            type_url: None,
            connection: ConnectionState::Idle,
            error: Some(long),
            connected_since: Some(now),
            identifier: Some("x".repeat(200).into()),
            system_version: Some("1".into()),
        };
        let status = ClientStatus {
            node_id: "n".into(),
            scope: "s".into(),
            taken_at: now,
            servers: vec![server],
            load_reports: vec![],
            resources: vec![resource],
            #[cfg(feature = "csds")]
            node: bytes::Bytes::new(),
        };
        let shown = status.to_string();
        assert!(shown.len() < 10_000, "{} bytes", shown.len());
        assert!(shown.lines().all(|line| !line.is_empty()), "{shown}");
    }
}
