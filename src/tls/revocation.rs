//! Certificate revocation lists from files, kept up to date (CH7.17, A69).

mod list;
mod lists;
mod readings;

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use tokio_rustls::rustls::pki_types::UnixTime;

pub(super) use self::lists::{Chain, Lists, Role};
use self::readings::Readings;
use super::{
    material::{now, read_in_background},
    watching::{Watch, Watching},
};
use crate::{
    config::{DEFAULT_REFRESH_INTERVAL, bounded},
    file_reads::FileReads,
};

/// The certificate revocation lists (CRLs) of a channel or of a client, which the certificates of endpoints or of management servers
/// must not be in (gRFC [A69](https://github.com/grpc/proposal/blob/master/A69-crl-enhancements.md)). They are set by
/// `ChannelBuilder::certificate_revocation` and
/// [`ClientBuilder::certificate_revocation`](crate::client::ClientBuilder::certificate_revocation).
///
/// Files are PEM (any number of `X509 CRL` sections) or DER (one list), of 16 MiB at most, and 64 MiB in all. They are read
/// before the first handshake and then at the interval. A file that becomes unusable is a warning, and its last good lists are
/// kept; a file that is removed from a directory ends its lists, once all files of the directory can be read.
///
/// A list counts if the issuer of the certificate has signed it. Each certificate of a server's chain is looked up, except the
/// root. Delta lists, indirect lists, lists of some reasons only, and lists without a next update are not supported.
///
/// By default, a certificate is refused if its status is *undetermined*: no list of its issuer is there, or all have expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RevocationLists {
    source: Source,
    refresh_interval: Duration,
    /// Whether certificates of undetermined status are accepted.
    fails_open: bool,
}

/// The files that lists are read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Source {
    Directory(PathBuf),
    Files(Vec<PathBuf>),
}

/// The lists of a setting, shared by all channels of a client with this setting.
pub(crate) struct Revocation {
    settings: RevocationLists,
    /// The states of the files. Held during a reading, so that there is one at a time.
    readings: Arc<tokio::sync::Mutex<Readings>>,
    /// Bounds the time and the threads of readings.
    reads: FileReads,
    published: Mutex<Published>,
    /// The task that reads the files again, while somebody needs it.
    watch: Watch,
}

/// The result of the last reading.
#[derive(Clone, Default)]
struct Published {
    /// `None` before the first reading.
    lists: Option<Arc<Lists>>,
    /// When the next reading is due.
    due: Option<Instant>,
}

impl RevocationLists {
    /// All files of a directory, whatever their names; those that begin with a dot, and directories in it, are skipped.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::new(Source::Directory(path.into()))
    }

    /// These files.
    pub fn files<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::new(Source::Files(paths.into_iter().map(Into::into).collect()))
    }

    /// Accepts certificates whose status is undetermined; by default they are refused.
    pub fn fail_open(mut self) -> Self {
        self.fails_open = true;
        self
    }

    /// Sets the time between readings: 1 s to 30 years, 10 min by default.
    pub fn refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = bounded(interval).max(Duration::from_secs(1));
        self
    }

    /// Creates a setting with the defaults.
    fn new(source: Source) -> Self {
        Self { source, refresh_interval: DEFAULT_REFRESH_INTERVAL, fails_open: false }
    }
}

/// Names the files for errors and logs.
impl fmt::Display for RevocationLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate revocation lists ")?;
        match &self.source {
            Source::Directory(path) => write!(f, "in {}", path.display()),
            Source::Files(paths) => {
                for (at, path) in paths.iter().take(MAX_SHOWN).enumerate() {
                    write!(f, "{}{}", if at == 0 { "" } else { ", " }, path.display())?;
                }
                match paths.len().saturating_sub(MAX_SHOWN) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

impl Revocation {
    /// Creates the lists without I/O; a watch or the first handshake reads them.
    pub(crate) fn new(settings: RevocationLists) -> Arc<Self> {
        let readings = Arc::new(tokio::sync::Mutex::new(Readings::new(settings.refresh_interval)));
        let reads = FileReads::default();
        Arc::new(Self { settings, readings, reads, published: Mutex::default(), watch: Watch::default() })
    }

    /// Keeps the lists up to date while the result is held. To be called within a runtime.
    pub(super) fn watch(self: &Arc<Self>) -> Arc<Watching> {
        let this = Arc::downgrade(self);
        self.watch.start(move || {
            let this = this.upgrade();
            async move { this?.read(false).await }
        })
    }

    /// The lists for a handshake: the last good ones. They are read if there are none.
    pub(super) async fn for_handshake(self: &Arc<Self>) -> Arc<Lists> {
        if self.published().lists.is_none_or(|lists| lists.is_empty()) {
            self.read(true).await;
        }
        // Without a reading the runtime ends, and with it the handshake.
        self.published().lists.unwrap_or_else(|| {
            let failures = vec!["not read yet".into()];
            Arc::new(Lists::new(self.settings.to_string().into(), false, [], failures))
        })
    }

    /// Returns the result of the last reading.
    fn published(&self) -> Published {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads what is due, and returns when the next reading is. If it is needed, what has never been good is due earlier.
    async fn read(self: &Arc<Self>, is_needed: bool) -> Option<Instant> {
        let this = self.clone();
        // A handshake that is given up leaves a reading that goes on.
        read_in_background(async move { this.read_due(is_needed).await }).await;
        self.published().due
    }

    /// Reads what is due, one reading at a time.
    async fn read_due(self: Arc<Self>, is_needed: bool) {
        // Handshakes that wait for the same reading find it done.
        let mut readings = self.readings.clone().lock_owned().await;
        if is_needed {
            readings.handle_need();
        }
        let begin = now();
        let directory = match readings.is_directory_due(begin) {
            true => {
                let source = self.settings.source.clone();
                let path = source.path();
                Some(self.reads.read(readings::FIELD, &path, move || source.files()).await)
            }
            false => None,
        };
        let has_changed = readings.handle_directory(&self.settings, begin, directory);
        let (mut left, mut files) = (readings.left(begin), Vec::new());
        for path in readings.due_files(begin) {
            // One that hangs delays those after it, and no more.
            let file = path.clone();
            let reading = self.reads.read(readings::FIELD, &path, move || readings::read(&file)).await;
            let reading = reading.and_then(|bytes| left.take(&path, bytes));
            files.push((path, reading));
        }
        let parse = move || {
            let wall = Duration::from_secs(UnixTime::now().as_secs());
            let has_changed = readings.handle_files(begin, wall, files) | has_changed;
            self.publish(&readings, has_changed);
        };
        // It fails only if the runtime ends.
        drop(spawn_blocking(parse).await);
    }

    /// Publishes the result of a reading.
    fn publish(&self, readings: &Readings, has_changed: bool) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        // Sessions are of the lists that they began with, so those that are the same stay the same (CH7.16).
        if has_changed || published.lists.is_none() {
            published.lists = Some(Arc::new(readings.lists(&self.settings)));
        }
        published.due = readings.poll_timeout();
    }
}

impl fmt::Debug for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revocation").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The serial numbers in each list of a file.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_lists(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, String> {
    use self::list::{List, NoLists};

    let serials = |list: List| {
        let serials: Vec<_> = list.revoked().map(<[u8]>::to_vec).collect();
        assert!(serials.iter().all(|serial| list.names(serial)) && !list.names(&[0, 0]), "{list:?}");
        serials
    };
    match List::in_file(bytes) {
        Ok(lists) => Ok(lists.into_iter().map(serials).collect()),
        Err(NoLists::Incomplete(reason) | NoLists::Unusable(reason)) => Err(reason),
    }
}

/// How many files an error names.
const MAX_SHOWN: usize = 4;

#[cfg(test)]
mod tests;
