//! The time limit of tests.

use std::{future::Future, time::Duration};

/// Fails if something takes so long that it will not happen.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}
