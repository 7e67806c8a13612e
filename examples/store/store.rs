//! The store of the program: addresses by name, in a file with one workload a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::workload::Workload;

/// The workloads, and the file that they are kept in.
pub(crate) struct Store {
    file: PathBuf,
    workloads: BTreeMap<String, SocketAddr>,
    /// The names that were in the file, and that the server has not sent since.
    unconfirmed: BTreeSet<String>,
}

impl Store {
    /// The store of a file; an empty one if there is no file.
    pub(crate) fn open(file: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let line = |line: &str| {
            let (name, address) = line.split_once(' ')?;
            Some((name.to_owned(), address.parse().ok()?))
        };
        let workloads: BTreeMap<_, _> = text.lines().filter_map(line).collect();
        let unconfirmed = workloads.keys().cloned().collect();
        Ok(Self { file: file.to_owned(), workloads, unconfirmed })
    }

    /// Takes a workload; the reason if it has no usable address.
    pub(crate) fn insert(&mut self, name: &str, workload: &Workload) -> Result<(), String> {
        self.unconfirmed.remove(name);
        let address = &workload.address;
        let address = address.parse().map_err(|_| format!("{address:?} is no address with a port"))?;
        self.workloads.insert(name.to_owned(), address);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.workloads.remove(name);
    }

    /// The server has sent everything: what it has not sent since the file was read has ended meanwhile.
    pub(crate) fn retain_received(&mut self) {
        for name in std::mem::take(&mut self.unconfirmed) {
            self.workloads.remove(&name);
        }
    }

    /// Writes the file, beside the old one and then in its place.
    pub(crate) fn save(&self) -> io::Result<()> {
        let lines = self.workloads.iter().map(|(name, address)| format!("{name} {address}\n"));
        let new = self.file.with_extension("new");
        fs::write(&new, lines.collect::<String>())?;
        fs::rename(new, &self.file)
    }

    pub(crate) fn len(&self) -> usize {
        self.workloads.len()
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.workloads.iter().map(|(name, address)| format!("{name}={address}")).collect();
        write!(f, "store: {}", all.join(" "))
    }
}
