use std::{
    fmt,
    time::{Duration, SystemTime},
};

use super::{ClientStatus, LastLoadReport, LoadReportStatus, ResourceStatus, ServerStatus};
use crate::{escape::Escaped, lrs::LoadStreamState, protocol::ConnectionState};

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
            let Some(error) = &resource.error else { continue };
            write!(f, "\n! {}", error.details)?;
            write_occasion(f, error.version.as_str(), &self.age(error.at))?;
        }
        Ok(())
    }
}

impl ClientStatus {
    fn row(&self, resource: &ResourceStatus) -> Row {
        [
            Escaped(&resource.name).to_string(),
            resource.state.to_string(),
            Escaped(&resource.version).to_string(),
            type_name(resource.type_url).into(),
            resource.last_updated.map(|at| self.age(at)).unwrap_or_default(),
        ]
    }

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
        self.error.as_ref().map_or(Ok(()), |error| write!(f, "; {}", Escaped(error)))
    }
}

/// The cells of a resource: its name, status, version and type, and its age.
pub(crate) type Row = [String; 5];

/// Writes the rows below the column names, without the end of the last line.
pub(crate) fn write_table(f: &mut impl fmt::Write, rows: &[Row]) -> fmt::Result {
    let mut widths = HEAD.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    write_row(f, &HEAD, &widths)?;
    for row in rows {
        f.write_str("\n")?;
        write_row(f, row, &widths)?;
    }
    Ok(())
}

/// Writes the version and the age of the failed update, after its error.
pub(crate) fn write_occasion(f: &mut impl fmt::Write, version: &str, age: &str) -> fmt::Result {
    if version.is_empty() {
        write!(f, " ({age})")
    } else {
        write!(f, " (version {}, {age})", Escaped(version))
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

fn write_row<T: AsRef<str>>(f: &mut impl fmt::Write, row: &[T; 5], widths: &[usize; 5]) -> fmt::Result {
    let line = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", cell.as_ref()));
    f.write_str(line.collect::<Vec<_>>().join("  ").trim_end())
}

/// The columns of `grpcdebug`.
const HEAD: [&str; 5] = ["Name", "Status", "Version", "Type", "LastUpdated"];
