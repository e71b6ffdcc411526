//! Certificates that are renewed while the coordinator runs.
//!
//! Files are looked at by content, not by time or inode: that also sees what Kubernetes does, which
//! swaps a symbolic link to a directory. A certificate and its key cannot be replaced in one step,
//! so a pair that does not fit is looked at once more before anyone is told.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::watch;

use super::{Contents, Door, Files, Identity, Loaded, TlsError, TlsMetrics, check};
use crate::clock::unix_time;

/// How often the files are looked at: certificates are renewed days before they expire.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the identity of one door as its files say.
#[derive(Debug)]
pub struct Renewal {
    door: Door,
    files: Files,
    metrics: TlsMetrics,
    config: watch::Sender<Arc<ServerConfig>>,
    /// What was last taken or refused.
    settled: Seen,
    /// What could not be used when it was first seen.
    suspect: Option<Seen>,
}

/// What the files were like; none if they could not be read.
type Seen = Option<[u8; 32]>;

// === impl Renewal ===

impl Renewal {
    /// The identity that `files` say, and what keeps it so.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(
        door: Door,
        files: Files,
        metrics: TlsMetrics,
    ) -> Result<(Self, Identity), TlsError> {
        let contents = Contents::read(&files)?;
        let loaded = check::loaded(&files, &contents, door, unix_time())?;
        metrics.start(door, &loaded);
        let (sender, config) = watch::channel(loaded.config);
        let renewal = Self {
            door,
            files,
            metrics,
            config: sender,
            settled: Some(contents.fingerprint()),
            suspect: None,
        };
        Ok((renewal, Identity { config }))
    }

    /// Looks at the files until nobody uses the identity any more.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.config.closed() => return,
            }
            let files = self.files.clone();
            // A file system can be slow, and the threads of the runtime are for connections.
            let read = tokio::task::spawn_blocking(move || Contents::read(&files)).await;
            if let Ok(read) = read {
                self.look(read);
            }
        }
    }

    /// Takes `read` if it is new and good; tells once if it is new and stays bad.
    pub(super) fn look(&mut self, read: Result<Contents, TlsError>) {
        let seen = read.as_ref().ok().map(Contents::fingerprint);
        if seen == self.settled {
            self.suspect = None;
            return;
        }
        let loaded =
            read.and_then(|contents| check::loaded(&self.files, &contents, self.door, unix_time()));
        match loaded {
            Ok(loaded) => self.take(seen, loaded),
            Err(error) if self.suspect == Some(seen) => self.refuse(seen, &error),
            Err(_) => self.suspect = Some(seen),
        }
    }

    fn take(&mut self, seen: Seen, loaded: Loaded) {
        tracing::info!(door = self.door.name(), "a new certificate is in use");
        self.metrics.count_taken(self.door, &loaded);
        self.config.send_replace(loaded.config);
        self.settled = seen;
        self.suspect = None;
    }

    fn refuse(&mut self, seen: Seen, error: &TlsError) {
        let door = self.door.name();
        tracing::error!(door, %error, "a new certificate is refused; the old one stays in use");
        self.metrics.count_refused(self.door);
        self.settled = seen;
        self.suspect = None;
    }
}
