//! Reads a file whose path may come from a server: only regular files, up to a size, and within a directory.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{SETTLE, watch::Stamp};
use crate::{
    config::PathSource,
    file_reads,
    protocol::{Disconnect, DisconnectKind},
};

/// Reads a file; `None` if it was, or may have been, written meanwhile.
///
/// # Errors
/// The file is unreadable, not regular, larger than the limit, or outside of its required directory.
pub(super) fn steady(file: &PathSource, limit: usize) -> Result<Option<Vec<u8>>, Disconnect> {
    let path = resolved(file)?;
    let before = Stamp::of(&path).map_err(unreadable)?;
    let document = whole(&path, limit)?;
    // Equal stamps are not enough: clocks of file systems are coarse, so that a write just after the reading may leave the same
    // time.
    let is_steady = before == Stamp::of(&path).map_err(unreadable)? && !before.is_newer_than(SETTLE);
    Ok(is_steady.then_some(document))
}

/// The path to read. If a directory is required, the path is free of links.
fn resolved(file: &PathSource) -> Result<PathBuf, Disconnect> {
    let Some(root) = &file.root else { return Ok(file.path.clone()) };
    let root = root.canonicalize().map_err(unreadable)?;
    let path = file.path.canonicalize().map_err(unreadable)?;
    // A missing directory is not watched beyond its nearest existing parent, and checked again once it exists.
    let directory = file.watched_directory.as_ref().and_then(|directory| directory.canonicalize().ok());
    let outside =
        [Some(&path), directory.as_ref()].into_iter().flatten().find(|path| !path.starts_with(&root));
    match outside {
        None => Ok(path),
        Some(outside) => {
            let (outside, root) = (outside.display(), root.display());
            Err(refused(format!("it leads to {outside}, outside of {root} (setting config_source_root)")))
        }
    }
}

/// Reads a file of limited size.
fn whole(path: &Path, limit: usize) -> Result<Vec<u8>, Disconnect> {
    let file = file_reads::open(path).map_err(unreadable)?;
    let mut document = Vec::new();
    // One byte more than the limit shows that a file is too large, whatever its metadata claim.
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut document).map_err(unreadable)?;
    if document.len() > limit {
        let message = format!("it is over the limit of {limit} bytes (setting max_message_size)");
        return Err(Disconnect::new(DisconnectKind::TooLarge { limit }, message));
    }
    Ok(document)
}

/// Returns the failure of a file that cannot be read.
fn unreadable(error: io::Error) -> Disconnect {
    refused(error.to_string())
}

/// Returns the failure of a file that is not to be read.
fn refused(why: String) -> Disconnect {
    Disconnect::new(DisconnectKind::Unreachable, why)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        process::Command,
        sync::{Arc, mpsc},
        thread,
        time::{Duration, SystemTime},
    };

    use super::*;

    const LIMIT: usize = 1 << 20;

    /// Reads a file, with a timeout.
    fn read(file: PathSource, limit: usize) -> Result<Vec<u8>, Disconnect> {
        let (sender, outcome) = mpsc::channel();
        thread::spawn(move || sender.send(steady(&file, limit)));
        let outcome = outcome.recv_timeout(Duration::from_secs(30)).expect("it is not waited for");
        outcome.map(|document| document.expect("nobody writes it"))
    }

    /// Writes a file with a modification time in the past.
    fn write(path: &Path, content: &[u8]) {
        fs::write(path, content).unwrap();
        let before = SystemTime::now() - Duration::from_secs(10);
        fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
    }

    fn message(outcome: Result<Vec<u8>, Disconnect>) -> String {
        outcome.unwrap_err().message
    }

    #[test]
    fn only_regular_files_are_read_also_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink("/dev/zero", at("zero")).unwrap();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        symlink(at("fifo"), at("link")).unwrap();
        for path in [at("zero"), at("fifo"), at("link"), dir.path().to_owned(), "/dev/zero".into()] {
            let error = read(PathSource::new(path), LIMIT).unwrap_err();
            assert_eq!(error, Disconnect::new(DisconnectKind::Unreachable, "it is not a regular file"));
        }
        write(&at("file"), b"1");
        symlink(at("file"), at("other")).unwrap();
        assert_eq!(read(PathSource::new(at("other")), LIMIT), Ok(b"1".to_vec()));
    }

    #[test]
    fn a_file_over_the_limit_is_an_error_that_names_limit_and_setting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, &[0; 1000]);
        assert_eq!(read(PathSource::new(&path), 1000).map(|read| read.len()), Ok(1000));
        write(&path, &[0; 1001]);
        let message = "it is over the limit of 1000 bytes (setting max_message_size)";
        let error = Disconnect::new(DisconnectKind::TooLarge { limit: 1000 }, message);
        assert_eq!(read(PathSource::new(&path), 1000), Err(error));
        assert_eq!(read(PathSource::new(&path), usize::MAX).map(|read| read.len()), Ok(1001));
    }

    #[test]
    fn a_file_that_a_server_names_is_within_the_root_also_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir_all(root.join("in")).unwrap();
        fs::create_dir(&outside).unwrap();
        write(&root.join("in").join("file"), b"in");
        write(&outside.join("file"), b"out");
        symlink("in/file", root.join("link")).unwrap();
        symlink("../outside/file", root.join("escape")).unwrap();
        symlink(&outside, root.join("dir")).unwrap();
        symlink(&root, dir.path().join("to root")).unwrap();
        for root in [root.clone(), dir.path().join("to root")] {
            let root: Arc<Path> = root.into();
            let named = |path: &str| PathSource::new(path).within(&root).unwrap();
            for path in ["in/file", "link"] {
                assert_eq!(read(named(path), LIMIT), Ok(b"in".to_vec()), "{path}");
            }
            for path in ["escape", "dir/file"] {
                let error = message(read(named(path), LIMIT));
                assert!(error.starts_with("it leads to ") && error.contains("outside of"), "{error}");
                assert!(error.ends_with("(setting config_source_root)"), "{error}");
            }
            let watched = PathSource::new("in/file").with_watched_directory("dir").within(&root).unwrap();
            assert!(message(read(watched, LIMIT)).contains("outside of"));
        }
        assert_eq!(read(PathSource::new(root.join("escape")), LIMIT), Ok(b"out".to_vec()), "without a root");
    }
}
