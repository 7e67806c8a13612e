//! Readings of files that must not hang: certificates, keys, trust bundle maps, revocation lists and tokens.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

/// Opens a regular file. A FIFO would wait for its writer, and devices have side effects.
///
/// # Errors
/// The file is unreadable, or not a regular one.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let check = |is_file: bool| match is_file {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    check(fs::metadata(path)?.is_file())?;
    let file = without_waiting().open(path)?;
    // The file may have been replaced.
    check(file.metadata()?.is_file())?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes. `field` is its name in the configuration, for the error.
///
/// # Errors
/// A text with the field, the path and the reason: the file is unreadable, not regular, or larger than the limit.
pub(crate) fn read(field: &str, path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    read.map_err(|e| in_file(field, path, &e))?;
    if bytes.len() as u64 > limit {
        let limit =
            if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{} KiB", limit >> 10) };
        return Err(in_file(field, path, &format!("larger than {limit}")));
    }
    Ok(bytes)
}

/// A text about a file of a field in the configuration.
pub(crate) fn in_file(field: &str, path: &Path, why: &dyn Display) -> String {
    format!("{field} {}: {why}", path.display())
}

/// Readings on threads for blocking operations, each within a limit of time.
///
/// A reading that hangs, such as one of a file on a mount whose server is gone, keeps its thread. So a file has few readings at a time.
#[derive(Debug, Default)]
pub(crate) struct FileReads {
    /// The readings that have not ended, by the path of their file.
    by_path: ByPath,
}

/// What limits the readings of each file that has any.
type ByPath = Arc<Mutex<BTreeMap<PathBuf, Arc<Semaphore>>>>;

/// A reading of a file that has not ended.
struct Running {
    /// The file.
    path: PathBuf,
    /// Where it is to be removed at its end.
    by_path: ByPath,
    /// `None` once it is given back.
    permit: Option<OwnedSemaphorePermit>,
}

impl FileReads {
    /// Reads a file, or several that belong together, of which one is named.
    ///
    /// # Cancel safety
    /// The reading goes on without its result.
    ///
    /// # Errors
    /// The error of the reading, or a text with the field and the path: within [`READING_LIMIT`], the reading has not ended, or neither
    /// have [`MAX_HANGING`] readings before.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        field: &str,
        path: &Path,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let mut has_begun = false;
        let reading = async {
            let running = self.begin(path).await;
            has_begun = true;
            spawn_blocking(move || {
                let read = read();
                drop(running);
                read
            })
            .await
        };
        match timeout(READING_LIMIT, reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) if error.is_panic() => Err(in_file(field, path, &"the reading panicked")),
            Ok(Err(_)) => Err(in_file(field, path, &"the runtime has ended")),
            Err(_) if has_begun => Err(in_file(field, path, &format!("not read within {READING_LIMIT:?}"))),
            Err(_) => {
                let why = format!("{MAX_HANGING} readings before have not ended; is its file system there?");
                Err(in_file(field, path, &why))
            }
        }
    }

    /// Waits until the file may be read.
    async fn begin(&self, path: &Path) -> Running {
        let limit = {
            let mut by_path = lock(&self.by_path);
            let new = || Arc::new(Semaphore::new(MAX_HANGING));
            by_path.entry(path.to_owned()).or_insert_with(new).clone()
        };
        let permit = limit.acquire_owned().await.ok();
        Running { path: path.to_owned(), by_path: self.by_path.clone(), permit }
    }

    /// The number of files whose readings have not ended.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        lock(&self.by_path).len()
    }
}

/// However the reading ends.
impl Drop for Running {
    fn drop(&mut self) {
        let mut by_path = lock(&self.by_path);
        self.permit = None;
        // Whoever waits has the limit as well.
        if by_path.get(&self.path).is_some_and(|limit| Arc::strong_count(limit) == 1) {
            by_path.remove(&self.path);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
fn without_waiting() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options
}

#[cfg(not(unix))]
fn without_waiting() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
}

/// The time that a reading may take.
pub(crate) const READING_LIMIT: Duration = Duration::from_secs(10);
/// The readings of a file that may hang at a time.
pub(crate) const MAX_HANGING: usize = 2;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn ch7_27_only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&fifo, folder.path(), Path::new("/dev/zero")] {
            let error = read("ca_certificate_file", path, 10).unwrap_err();
            assert_eq!(error, format!("ca_certificate_file {}: it is not a regular file", path.display()));
        }
    }

    #[test]
    fn ch7_27_files_have_a_largest_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [b'a'; 2048]).unwrap();
        assert_eq!(read("token", &path, 2048).unwrap().len(), 2048);
        let error = read("token", &path, 2047).unwrap_err();
        assert_eq!(error, format!("token {}: larger than 1 KiB", path.display()));
        fs::write(&path, vec![b'a'; (1 << 20) + 1]).unwrap();
        let error = read("token", &path, 1 << 20).unwrap_err();
        assert_eq!(error, format!("token {}: larger than 1 MiB", path.display()));
    }

    #[tokio::test(start_paused = true)]
    async fn ch7_27_a_reading_that_hangs_ends_after_the_limit_and_keeps_few_threads() {
        let (reads, path) = (Arc::new(FileReads::default()), Path::new("/mnt/ca.pem"));
        let mut hanging = Vec::new();
        for _ in 0..MAX_HANGING {
            let (end, ends) = mpsc::channel::<()>();
            let of = reads.clone();
            let reading = tokio::spawn(async move {
                // It hangs until the test drops the other end.
                of.read("ca_certificate_file", path, move || ends.recv().map_err(|e| e.to_string())).await
            });
            tokio::task::yield_now().await;
            tokio::time::advance(READING_LIMIT + Duration::from_millis(1)).await;
            assert_eq!(
                reading.await.unwrap().unwrap_err(),
                "ca_certificate_file /mnt/ca.pem: not read within 10s"
            );
            hanging.push(end);
        }
        let of = reads.clone();
        let third = tokio::spawn(async move { of.read("ca_certificate_file", path, || Ok(())).await });
        tokio::task::yield_now().await;
        tokio::time::advance(READING_LIMIT + Duration::from_millis(1)).await;
        let refused = third.await.unwrap().unwrap_err();
        let why =
            "ca_certificate_file /mnt/ca.pem: 2 readings before have not ended; is its file system there?";
        assert_eq!(refused, why);
        let other = Path::new("/etc/other.pem");
        assert_eq!(reads.read("ca_certificate_file", other, || Ok(7)).await, Ok(7), "another file is read");
        drop(hanging);
        while reads.running() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.read("ca_certificate_file", path, || Ok(8)).await, Ok(8), "it is read again");
    }

    #[tokio::test]
    async fn ch7_27_readings_at_a_time_wait_for_each_other() {
        let (reads, path) = (Arc::new(FileReads::default()), Path::new("/etc/ca.pem"));
        let read = |number: usize| {
            let reads = reads.clone();
            tokio::spawn(async move { reads.read("ca_certificate_file", path, move || Ok(number)).await })
        };
        let all: Vec<_> = (0..50).map(read).collect();
        for (number, reading) in all.into_iter().enumerate() {
            assert_eq!(reading.await.unwrap(), Ok(number));
        }
        assert_eq!(reads.running(), 0);
    }

    #[tokio::test]
    async fn ch7_27_a_reading_that_panics_is_an_error() {
        let reads = FileReads::default();
        let error = reads.read("token", Path::new("a"), || -> Result<(), _> { panic!("as it should") }).await;
        assert_eq!(error, Err("token a: the reading panicked".to_owned()));
        assert_eq!(reads.running(), 0);
    }
}
