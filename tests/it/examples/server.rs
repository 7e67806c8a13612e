//! A management server with a bootstrap for programs.

use std::{fs, path::PathBuf};

use tempfile::TempDir;
use xdskit::testing::TestControlPlane;

/// A control plane, and a bootstrap file that leads to it.
pub(crate) struct Server {
    pub(crate) control_plane: TestControlPlane,
    pub(crate) folder: TempDir,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let control_plane = TestControlPlane::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("bootstrap.json");
        fs::write(file, control_plane.bootstrap_json()).expect("a file");
        Self { control_plane, folder }
    }

    pub(crate) fn bootstrap(&self) -> PathBuf {
        self.folder.path().join("bootstrap.json")
    }

    /// The arguments of a program, after the bootstrap.
    #[allow(dead_code, reason = "the tests of the tool use it")]
    pub(crate) fn args(&self, args: &str) -> Vec<String> {
        let bootstrap = self.bootstrap().display().to_string();
        let mut all = vec!["--bootstrap".to_owned(), bootstrap];
        all.extend(args.split_whitespace().map(str::to_owned));
        all
    }
}
