//! The file system events that concern a file.
//!
//! Watches are on directories and not on files, since a replaced file is a different one. For a file behind symbolic
//! links these are all directories in which a part of its path is a link: Kubernetes swaps a link between the file
//! and its content.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind, RenameMode},
};
use tokio::sync::Notify;

use crate::config::PathSource;

/// The system's watcher, shared by all files of a client, since systems limit the number of watchers.
#[derive(Debug, Default)]
pub(super) struct Hub {
    /// The watched directories.
    directories: Mutex<Directories>,
    /// The watches, which get all events.
    watches: Arc<Mutex<Vec<Weak<Shared>>>>,
}

/// The directories that the watcher of the system watches.
#[derive(Debug, Default)]
struct Directories {
    /// The watcher, made for the first directory.
    system: Option<RecommendedWatcher>,
    /// Directories with their identity and the number of watches that need them.
    watched: BTreeMap<PathBuf, (Identity, usize)>,
}

/// Device and inode, which distinguish a directory from another one under the same path; `None` if unknown.
type Identity = Option<(u64, u64)>;

/// A watch of one file.
#[derive(Debug)]
pub(super) struct Watch {
    hub: Arc<Hub>,
    /// The part that the thread of the watcher writes.
    shared: Arc<Shared>,
    file: Arc<PathSource>,
    /// The directories that are watched for the file.
    directories: BTreeSet<PathBuf>,
}

/// The part of a watch that events change.
#[derive(Debug)]
struct Shared {
    file: Arc<PathSource>,
    /// The watched directory of the file, if it has one. Absolute, as the paths of events are.
    watched_directory: Option<PathBuf>,
    state: Mutex<State>,
    /// Notified of each change.
    changed: Notify,
}

/// The events so far.
#[derive(Debug, Default)]
struct State {
    /// The file, and the links in its path.
    parts: BTreeSet<PathBuf>,
    /// Whether an event has occurred since the last check.
    changed: bool,
    /// Whether a writer has written and not closed the file.
    writing: bool,
}

impl Watch {
    /// Creates a watch of no directory; see [`follow`](Self::follow).
    pub(super) fn new(hub: Arc<Hub>, file: Arc<PathSource>) -> Self {
        let shared = Arc::new(Shared {
            file: file.clone(),
            watched_directory: file.watched_directory.as_deref().map(absolute),
            state: Mutex::default(),
            changed: Notify::new(),
        });
        let mut watches = lock(&hub.watches);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&shared));
        drop(watches);
        Self { hub, shared, file, directories: BTreeSet::new() }
    }

    /// Watches all directories on the current path of the file, so that no later change is missed. Blocks briefly.
    pub(super) fn follow(&mut self) -> Result<(), notify::Error> {
        let mut current = self.current_path();
        for _ in 0..MAX_TURNS {
            let (parts, directories) = current.clone();
            lock(&self.shared.state).parts = parts;
            let new = self.hub.exchange(&self.directories, &directories, &self.shared);
            self.directories = directories;
            // The path may have changed before its directories were watched.
            let now = self.current_path();
            if now == current {
                return new;
            }
            current = now;
        }
        Err(notify::Error::generic("its path keeps changing"))
    }

    /// Returns the parts of the path, and the directories to watch.
    fn current_path(&self) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
        let (parts, directories) = trace(&self.file.path);
        match &self.shared.watched_directory {
            Some(directory) => (parts, [existing(directory)].into()),
            None => (parts, directories),
        }
    }

    /// Waits for a change.
    ///
    /// # Cancel safety
    /// No change is lost.
    pub(super) async fn changed(&self) {
        loop {
            let notified = self.shared.changed.notified();
            if std::mem::take(&mut lock(&self.shared.state).changed) {
                return;
            }
            notified.await;
        }
    }

    /// Whether the file is being written.
    pub(super) fn is_being_written(&self) -> bool {
        lock(&self.shared.state).writing
    }

    /// Stops waiting for a writer that does not close the file.
    pub(super) fn forget_writer(&self) {
        lock(&self.shared.state).writing = false;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A watch that could not be ended ends with the hub.
        let _ = self.hub.exchange(&self.directories, &BTreeSet::new(), &self.shared);
    }
}

impl Hub {
    /// Replaces the watched directories of a watch.
    fn exchange(
        &self,
        before: &BTreeSet<PathBuf>,
        now: &BTreeSet<PathBuf>,
        shared: &Arc<Shared>,
    ) -> Result<(), notify::Error> {
        let mut directories = lock(&self.directories);
        let mut outcome = Ok(());
        for directory in now {
            if let Err(error) = directories.watch(directory, before.contains(directory), &self.watches) {
                outcome = Err(error);
            }
        }
        for directory in before.difference(now) {
            directories.unwatch(directory);
        }
        if now.is_empty() {
            let gone = Arc::downgrade(shared);
            lock(&self.watches).retain(|watch| !watch.ptr_eq(&gone));
        }
        outcome
    }
}

impl Directories {
    /// Watches a directory for one more watch, unless that has it.
    fn watch(
        &mut self,
        directory: &Path,
        is_known: bool,
        watches: &Arc<Mutex<Vec<Weak<Shared>>>>,
    ) -> Result<(), notify::Error> {
        let identity = identity(directory);
        let (watched, count) = self.watched.entry(directory.to_owned()).or_insert((None, 0));
        *count += usize::from(!is_known);
        // The watcher of the system has the directory already, unless this is its first use.
        let is_same = *count > 1 || is_known;
        // A directory that was replaced by another one has the same path, but events come only from the old one.
        if is_same && *watched == identity && identity.is_some() {
            return Ok(());
        }
        *watched = identity;
        let system = match &mut self.system {
            Some(system) => system,
            none @ None => {
                let watches = watches.clone();
                none.insert(notify::recommended_watcher(move |event| notify_watches(&watches, event))?)
            }
        };
        // Removes a watch of a previous directory with this path.
        let _ = system.unwatch(directory);
        system.watch(directory, RecursiveMode::NonRecursive)
    }

    /// Ends the use of a directory by one watch.
    fn unwatch(&mut self, directory: &Path) {
        let Some((_, count)) = self.watched.get_mut(directory) else { return };
        *count -= 1;
        if *count == 0 {
            self.watched.remove(directory);
            if let Some(system) = &mut self.system {
                // The directory may be gone, and its watch with it.
                let _ = system.unwatch(directory);
            }
        }
    }
}

/// Passes an event to all watches. Runs on the thread of the watcher.
fn notify_watches(watches: &Mutex<Vec<Weak<Shared>>>, event: notify::Result<Event>) {
    let watches: Vec<_> = lock(watches).iter().filter_map(Weak::upgrade).collect();
    for watch in watches {
        watch.handle(event.as_ref().ok());
    }
}

impl Shared {
    /// Handles an event. `None` stands for lost events, after which anything may have changed.
    fn handle(&self, event: Option<&Event>) {
        let mut state = lock(&self.state);
        let Some(event) = event.filter(|event| !event.need_rescan()) else {
            (state.changed, state.writing) = (true, false);
            return self.changed.notify_one();
        };
        let is_part = event.paths.iter().any(|path| state.parts.contains(path));
        let is_whole = match &self.watched_directory {
            // D3: moves into the directory, and nothing else.
            Some(directory) => {
                let in_it = event.paths.iter().any(|path| path.parent() == Some(directory));
                (in_it && is_move(event.kind))
                    || event.paths.contains(directory)
                    || (self.file.watch_modify && is_part)
            }
            None => is_part,
        };
        if !is_whole {
            return;
        }
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => state.writing = false,
            // Includes access by this process.
            EventKind::Access(_) => return,
            // Other systems do not report when a writer closes the file.
            EventKind::Modify(ModifyKind::Data(_)) if cfg!(target_os = "linux") => state.writing = true,
            // Another file is at the path now, or none: the writer of the one before is not waited for.
            EventKind::Modify(_) | EventKind::Remove(_) => state.writing = false,
            EventKind::Any | EventKind::Create(_) | EventKind::Other => {}
        }
        state.changed = true;
        self.changed.notify_one();
    }
}

/// Whether an entry was moved into a directory. Some systems only report the existence of the entry.
fn is_move(kind: EventKind) -> bool {
    match kind {
        EventKind::Modify(ModifyKind::Name(mode)) => mode != RenameMode::From,
        EventKind::Create(_) => !cfg!(target_os = "linux"),
        EventKind::Any
        | EventKind::Access(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => false,
    }
}

/// Returns the file and the links in its path, and the directories that contain these. For a missing file or link, the path where
/// it would be created.
fn trace(path: &Path) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
    let (mut parts, mut directories) = (BTreeSet::new(), BTreeSet::new());
    let mut ahead = vec![absolute(path)];
    let mut links = 0;
    while let Some(path) = ahead.pop() {
        let mut at = PathBuf::new();
        let mut steps = path.components();
        while let Some(step) = steps.next() {
            let parent = at.clone();
            at.push(step);
            let target = fs::read_link(&at).ok().filter(|_| links < MAX_LINKS);
            let is_last = steps.as_path().as_os_str().is_empty();
            if target.is_some() || is_last || !at.exists() {
                parts.insert(at.clone());
                directories.insert(existing(&parent));
            }
            if let Some(target) = target {
                links += 1;
                // The rest of the path continues behind the link.
                ahead.push(parent.join(target).join(steps.as_path()));
                break;
            }
        }
    }
    (parts, directories)
}

/// Returns the nearest existing directory.
fn existing(directory: &Path) -> PathBuf {
    let directory = absolute(directory);
    let found = directory.ancestors().find(|ancestor| ancestor.is_dir());
    found.map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Returns an absolute path, without resolving links.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(unix)]
fn identity(directory: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(directory).ok().map(|of| (of.dev(), of.ino()))
}

/// Never equal, so that it is always watched anew.
#[cfg(not(unix))]
fn identity(_: &Path) -> Identity {
    None
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The metadata of a file: if equal before and after reading, the file was not written in the meantime.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    length: u64,
    modified: Option<std::time::SystemTime>,
    identity: Identity,
}

impl Stamp {
    /// Reads the metadata.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let of = fs::metadata(path)?;
        Ok(Self { length: of.len(), modified: of.modified().ok(), identity: identity(path) })
    }

    /// Whether the file was written so recently that more may follow.
    pub(super) fn is_newer_than(&self, age: std::time::Duration) -> bool {
        self.modified.is_some_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed < age))
    }
}

/// The maximum number of attempts to find a stable path to a file.
const MAX_TURNS: usize = 8;

/// The maximum number of links to follow, as in operating systems.
const MAX_LINKS: usize = 40;

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{env, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn d3_a_relative_watched_directory_reports_files_that_are_moved_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let file = PathSource::new(path("clusters.json")).with_watched_directory(relative(directory.path()));
        let mut watch = Watch::new(Arc::default(), Arc::new(file));
        watch.follow().unwrap();
        fs::write(path("other.tmp"), "").unwrap();
        fs::rename(path("other.tmp"), path("other.json")).unwrap();
        let reported = timeout(Duration::from_secs(10), watch.changed()).await;
        reported.expect("a move into the watched directory is not reported within 10 s");
    }

    /// The path to an absolute one from the working directory.
    fn relative(path: &Path) -> PathBuf {
        let root: PathBuf = env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
        root.join(path.strip_prefix("/").unwrap())
    }
}
