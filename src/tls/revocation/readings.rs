//! Which files are read, and what readings change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    super::{
        files::{self, Unusable, in_file},
        refresh::{Change, Refresh, is_due},
    },
    RevocationLists, Source,
    list::{List, NoLists},
    lists::Lists,
};

/// The states of a directory and its files. Each file is refreshed apart from the others (A69).
pub(super) struct Readings {
    /// The time between readings of a file.
    interval: Duration,
    /// The largest size of all files together, in bytes.
    max_total: usize,
    /// The list of files; for single files it never changes.
    directory: Refresh<Vec<PathBuf>, Vec<PathBuf>>,
    /// The listed files with their last good lists.
    files: BTreeMap<PathBuf, File>,
    /// The last good lists of files that are gone, until all others can be read.
    gone: BTreeMap<PathBuf, Arc<Vec<Arc<List>>>>,
    /// Files with expired lists, each of which was logged once.
    expired: BTreeSet<PathBuf>,
}

/// A file, and the lists in it.
type File = Refresh<Vec<u8>, Vec<Arc<List>>>;

impl Readings {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            max_total: MAX_TOTAL,
            directory: Refresh::new(interval),
            files: BTreeMap::new(),
            gone: BTreeMap::new(),
            expired: BTreeSet::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn with_max_total(self, max_total: usize) -> Self {
        Self { max_total, ..self }
    }

    /// A handshake has no lists: what has never been good is due earlier.
    pub(super) fn handle_need(&mut self) {
        self.directory.handle_need();
        self.files.values_mut().for_each(Refresh::handle_need);
    }

    /// When the next reading is due; `None` is at once.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let files = self.files.values().map(Refresh::poll_timeout);
        files.chain([self.directory.poll_timeout()]).min().flatten()
    }

    /// Whether the list of files is to be read.
    pub(super) fn is_directory_due(&self, now: Instant) -> bool {
        is_due(self.directory.poll_timeout(), now)
    }

    /// Takes a reading of the list of files, and returns whether that has changed. Without one, the files are those before.
    pub(super) fn handle_directory(
        &mut self,
        of: &RevocationLists,
        now: Instant,
        reading: Option<Result<Vec<PathBuf>, String>>,
    ) -> bool {
        let mut has_changed = false;
        if let Some(reading) = reading {
            let change = self.directory.handle_reading(now, reading, |paths| Ok(paths.clone()));
            has_changed = log(&of.to_string(), &change, self.directory.failure());
        }
        self.match_files();
        has_changed
    }

    /// The files that are to be read, in the order of their names.
    pub(super) fn due_files(&self, now: Instant) -> Vec<PathBuf> {
        let due = self.files.iter().filter(|(_, file)| is_due(file.poll_timeout(), now));
        due.map(|(path, _)| path.clone()).collect()
    }

    /// The bytes that are left for files that are due: those that are not due are kept.
    pub(super) fn left(&self, now: Instant) -> Left {
        let kept = self.files.values().filter(|file| !is_due(file.poll_timeout(), now));
        let kept: usize = kept.filter_map(Refresh::source).map(Vec::len).sum();
        Left { left: self.max_total.saturating_sub(kept), max_total: self.max_total }
    }

    /// Takes readings of files, and returns whether the lists are others. `wall` is the time since 1970.
    pub(super) fn handle_files(
        &mut self,
        now: Instant,
        wall: Duration,
        readings: Vec<(PathBuf, Result<Vec<u8>, String>)>,
    ) -> bool {
        let mut has_changed = false;
        for (path, reading) in readings {
            if let Some(file) = self.files.get_mut(&path) {
                let change = file.handle_reading(now, reading, |bytes| parse(&path, bytes));
                has_changed |= log(&path.display().to_string(), &change, file.failure());
            }
        }
        has_changed |= self.forget_gone();
        self.warn_of_expired(wall);
        has_changed
    }

    /// Reads what is due, at once.
    #[cfg(test)]
    pub(super) fn read_due(&mut self, of: &RevocationLists, now: Instant, wall: Duration) -> bool {
        let directory = self.is_directory_due(now).then(|| of.source.files());
        let has_changed = self.handle_directory(of, now, directory);
        let mut left = self.left(now);
        let readings = self.due_files(now).into_iter().map(|path| {
            let reading = read(&path).and_then(|bytes| left.take(&path, bytes));
            (path, reading)
        });
        let readings = readings.collect();
        self.handle_files(now, wall, readings) | has_changed
    }

    /// The last good lists.
    pub(super) fn lists(&self, settings: &RevocationLists) -> Lists {
        let lists = self.good().map(|(path, list)| (path.clone(), list.clone()));
        let failures = self.failures().cloned().collect();
        Lists::new(settings.to_string().into(), settings.fails_open, lists, failures)
    }

    /// The reasons why lists cannot be read.
    pub(super) fn failures(&self) -> impl Iterator<Item = &Arc<str>> {
        self.directory.failure().into_iter().chain(self.files.values().filter_map(Refresh::failure))
    }

    /// Makes the states of files match the list of files.
    fn match_files(&mut self) {
        let listed = self.directory.material().cloned().unwrap_or_default();
        let mut before = mem::take(&mut self.files);
        for path in &*listed {
            let file = before.remove(path).unwrap_or_else(|| Refresh::new(self.interval));
            self.files.insert(path.clone(), file);
        }
        let lists = |(path, file): (PathBuf, File)| Some((path, file.material()?.clone()));
        self.gone.extend(before.into_iter().filter_map(lists));
    }

    /// Forgets the lists of files that are gone, unless a file cannot be read: it may be what they are in now (A69).
    fn forget_gone(&mut self) -> bool {
        self.failures().next().is_none() && !mem::take(&mut self.gone).is_empty()
    }

    /// Returns the last good lists with their files.
    fn good(&self) -> impl Iterator<Item = (&PathBuf, &Arc<List>)> {
        let files = self.files.iter().filter_map(|(path, file)| Some((path, file.material()?)));
        let all = files.chain(&self.gone);
        all.flat_map(|(path, lists)| lists.iter().map(move |list| (path, list)))
    }

    /// Logs each list that has expired since the last time.
    fn warn_of_expired(&mut self, wall: Duration) {
        let expired: BTreeMap<_, _> =
            self.good().filter_map(|(path, list)| Some((path.clone(), list.expired(wall)?))).collect();
        for (path, ago) in expired.iter().filter(|(path, _)| !self.expired.contains(*path)) {
            let (file, seconds) = (path.display().to_string(), ago.as_secs());
            tracing::warn!(file, seconds, "certificate revocation list has expired");
        }
        self.expired = expired.into_keys().collect();
    }
}

impl Source {
    /// The path of the list of files.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Files(_) => PathBuf::new(),
            Self::Directory(directory) => directory.clone(),
        }
    }

    /// Lists the files. Called on a thread for blocking operations.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, String> {
        match self {
            Self::Files(paths) => Ok(paths.clone()),
            Self::Directory(directory) => {
                let files = files_in(directory).map_err(|e| in_file(FIELD, directory, &e))?;
                if files.len() > MAX_FILES {
                    return Err(in_file(FIELD, directory, &format!("more than {MAX_FILES} files")));
                }
                Ok(files)
            }
        }
    }
}

/// The files of a directory, in the order of their names.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A link to nowhere is a file that cannot be read.
        if !is_hidden && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    files::read(FIELD, path)
}

/// The rest of the largest size of all files together.
pub(super) struct Left {
    left: usize,
    max_total: usize,
}

impl Left {
    /// Takes the size of a file.
    pub(super) fn take(&mut self, path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let mib = self.max_total >> 20;
        let left = self.left.checked_sub(bytes.len());
        self.left =
            left.ok_or_else(|| in_file(FIELD, path, &format!("more than {mib} MiB of lists in all")))?;
        Ok(bytes)
    }
}

/// Parses the lists of a file.
fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Arc<List>>, Unusable> {
    match List::in_file(bytes) {
        Ok(lists) => Ok(lists.into_iter().map(Arc::new).collect()),
        Err(NoLists::Incomplete(why)) => Err(Unusable::incomplete(in_file(FIELD, path, &why))),
        Err(NoLists::Unusable(why)) => Err(Unusable::new(in_file(FIELD, path, &why))),
    }
}

/// Logs what a reading has changed, and returns whether it has. A failure is a warning once, until it is over.
fn log(file: &str, change: &Change, reason: Option<&Arc<str>>) -> bool {
    let reason = reason.map_or("", |reason| &**reason);
    match change {
        Change::None => return false,
        Change::Material => tracing::debug!(file, "certificate revocation lists loaded"),
        Change::Mended => tracing::info!(file, "certificate revocation lists are usable again"),
        Change::Failed => {
            tracing::warn!(
                file,
                reason,
                "certificate revocation lists are unusable; the last good ones are kept"
            );
        }
        Change::StillFailed => {
            tracing::debug!(file, reason, "certificate revocation lists are still unusable");
            return false;
        }
    }
    true
}

/// The name of the setting, for errors.
pub(super) const FIELD: &str = "certificate_revocation";
/// The largest number of files of a directory.
const MAX_FILES: usize = 1024;
/// The largest size of all files together, in bytes.
const MAX_TOTAL: usize = 64 << 20;
