//! The store of the program: addresses and versions by name, in a file with one workload a line.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use xdskit::{client::Added, resource::Prost};

use crate::workload::Workload;

/// The workloads, and the file that they are kept in.
pub(crate) struct Store {
    file: PathBuf,
    workloads: BTreeMap<String, Stored>,
}

/// A workload in the store.
struct Stored {
    address: SocketAddr,
    /// The version in which the server has sent it.
    version: String,
}

impl Store {
    /// The store of a file; an empty one if there is no file.
    pub(crate) fn open(file: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let line = |line: &str| {
            let mut fields = line.split('\t');
            let (name, address, version) = (fields.next()?, fields.next()?, fields.next()?);
            let stored = Stored { address: address.parse().ok()?, version: version.to_owned() };
            Some((name.to_owned(), stored))
        };
        let workloads = text.lines().filter_map(line).collect();
        Ok(Self { file: file.to_owned(), workloads })
    }

    /// The versions by name, which a new client is given.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.workloads.iter().map(|(name, stored)| (name.as_str(), stored.version.as_str()))
    }

    /// Takes a workload; the reason if it has no usable address.
    pub(crate) fn insert(&mut self, added: &Added<Prost<Workload>>) -> Result<(), String> {
        let address = &added.resource.address;
        let address = address.parse().map_err(|_| format!("{address:?} is no address with a port"))?;
        let stored = Stored { address, version: added.version.to_string() };
        self.workloads.insert(added.name.to_string(), stored);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.workloads.remove(name);
    }

    /// Writes the file, beside the old one and then in its place.
    pub(crate) fn save(&self) -> io::Result<()> {
        let line =
            |(name, stored): (&String, &Stored)| format!("{name}\t{}\t{}\n", stored.address, stored.version);
        let lines = self.workloads.iter().map(line);
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
        let all: Vec<_> =
            self.workloads.iter().map(|(name, stored)| format!("{name}={}", stored.address)).collect();
        write!(f, "store: {}", all.join(" "))
    }
}
