//! The credentials of the relay's listener: files that are read again at an interval.

use std::time::Duration;

use tokio::{task::JoinHandle, time::interval};
use xdskit::{
    control_plane::ServerTls,
    error::Escaped,
    tool_support::{FileReads, supervise},
};

use super::{
    args::SecurityArgs,
    tokens::{TOKEN_FILE, Tokens},
};
use crate::program::Failure;

/// How clients are known, and how the relay is to them.
#[derive(Clone)]
pub struct Security {
    /// The command line.
    args: SecurityArgs,
    /// The tokens of clients, if they need one.
    tokens: Option<Tokens>,
    /// The certificate, if connections have TLS.
    tls: Option<ServerTls>,
}

impl Security {
    /// Reads the files of the arguments.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn read(args: &SecurityArgs) -> Result<Self, Failure> {
        let tokens = args.token_file.as_deref().map(Tokens::read).transpose().map_err(Failure::Failed)?;
        let tls = match (&args.tls_certificate, &args.tls_key) {
            (Some(certificate), Some(key)) => {
                let tls = ServerTls::from_files(certificate, key, args.client_ca.as_deref());
                Some(tls.map_err(|error| Failure::Failed(error.to_string()))?)
            }
            (Some(_) | None, _) => None,
        };
        Ok(Self { args: args.clone(), tokens, tls })
    }

    /// The tokens of clients, if they need one.
    pub fn tokens(&self) -> Option<Tokens> {
        self.tokens.clone()
    }

    /// The TLS of the listener.
    pub fn tls(&self) -> Option<ServerTls> {
        self.tls.clone()
    }

    /// Reads the files again at an interval, in a task of its own.
    pub fn spawn_refresh(self) -> JoinHandle<()> {
        let every = self.args.credentials_refresh;
        tokio::spawn(supervise("credentials of the relay", self.refresh(every)))
    }

    /// Reads the files again at an interval, for ever. What cannot be used is a warning, once for each reason, and what was read
    /// before stays in use.
    async fn refresh(self, every: Duration) {
        let reads = FileReads::default();
        let mut turns = interval(every);
        // They have just been read.
        turns.tick().await;
        let (mut of_tokens, mut of_tls) = (None, None);
        loop {
            turns.tick().await;
            if let Some((tokens, path)) = self.tokens.clone().zip(self.args.token_file.as_deref()) {
                // CH7.27: each reading has a limit of time, so that one that hangs does not keep the others from being read.
                report(&mut of_tokens, reads.read(TOKEN_FILE, path, move || tokens.reload()).await);
            }
            if let Some((tls, path)) = self.tls.clone().zip(self.args.tls_certificate.as_deref()) {
                let reload = move || tls.reload().map_err(|error| error.to_string());
                report(&mut of_tls, reads.read("--tls-certificate", path, reload).await);
            }
        }
    }
}

/// Logs the result of a reading, unless it is the failure that was logged before.
fn report(last: &mut Option<String>, read: Result<bool, String>) {
    match read {
        Ok(has_changed) => {
            if has_changed {
                tracing::info!("the credentials of the listener were replaced");
            }
            *last = None;
        }
        Err(reason) if last.as_ref() == Some(&reason) => {}
        Err(reason) => {
            tracing::warn!(reason = %Escaped(&reason), "credentials cannot be used, the last ones stay in use");
            *last = Some(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header::AUTHORIZATION};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cp19_files_that_change_are_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first").unwrap();
        let every = Duration::from_secs(10);
        let args = SecurityArgs {
            tls_certificate: None,
            tls_key: None,
            client_ca: None,
            token_file: Some(file.path().to_owned()),
            credentials_refresh: every,
        };
        let security = Security::read(&args).unwrap();
        let tokens = security.tokens.clone().unwrap();
        let is_known = |token: &str| {
            let value = format!("Bearer {token}").parse().unwrap();
            tokens.check(&HeaderMap::from_iter([(AUTHORIZATION, value)])).is_ok()
        };
        tokio::spawn(security.refresh(every));
        // Time only passes while no file is read.
        for (content, known) in [("second", "second"), ("", "second"), ("third", "third")] {
            std::fs::write(file.path(), content).unwrap();
            sleep(every).await;
            sleep(every).await;
            assert!(is_known(known), "{content:?}");
        }
        assert!(!is_known("first") && !is_known("second"));
    }
}
