//! Certificates that are renewed while the coordinator runs.
//!
//! Files are looked at by content, not by time or inode: that also sees what Kubernetes does, which
//! swaps a symbolic link to a directory. A certificate and its key cannot be replaced in one step,
//! so a pair that does not fit is looked at once more before anyone is told.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Contents, Holder, Loaded, Reason, TlsError, TlsMetrics};
use crate::net::files::FileReader;

/// How often the files are looked at: certificates are renewed days before they expire.
const INTERVAL: Duration = Duration::from_secs(1);

/// Files of which something is made that TLS is spoken with.
pub trait Source: Clone + Send + 'static {
    /// What is made.
    type Made: Send + Sync + 'static;

    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be read.
    fn read(&self) -> Result<Contents, TlsError>;

    /// The file that an error names which is of all of them.
    fn name(&self) -> &Path;

    /// Checks what was read.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of the file.
    fn make(&self, contents: &Contents) -> Result<Loaded<Self::Made>, TlsError>;
}

/// What files say now; changes when they do.
pub type Newest<T> = watch::Receiver<Arc<T>>;

/// Keeps what is made of files as they say.
#[derive(Debug)]
pub struct Renewal<S: Source> {
    holder: Holder,
    source: S,
    metrics: TlsMetrics,
    made: watch::Sender<Arc<S::Made>>,
    /// What was last taken or refused.
    settled: Seen,
    /// What could not be used when it was first seen.
    suspect: Option<Seen>,
}

/// What the files were like; none if they could not be read.
type Seen = Option<[u8; 32]>;

// === impl Renewal ===

impl<S: Source> Renewal<S> {
    /// What `holder` has from `source`, and what keeps it so.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn start(
        holder: Holder,
        source: S,
        metrics: TlsMetrics,
    ) -> Result<(Self, Newest<S::Made>), TlsError> {
        let contents = source.read()?;
        let loaded = source.make(&contents)?;
        metrics.start(holder, loaded.expires);
        let (sender, made) = watch::channel(loaded.made);
        let renewal = Self {
            holder,
            source,
            metrics,
            made: sender,
            settled: Some(contents.fingerprint()),
            suspect: None,
        };
        Ok((renewal, made))
    }

    /// Looks at the files until nobody uses what is made of them any more.
    pub async fn run(mut self) {
        let files = FileReader::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.made.closed() => return,
            }
            let source = self.source.clone();
            // A file system can be slow, and the threads of the runtime are for connections.
            let read = files.run(move || source.read()).await;
            self.look(read.unwrap_or_else(|cause| Err(self.hangs(cause))));
        }
    }

    fn hangs(&self, cause: io::Error) -> TlsError {
        TlsError {
            file: self.source.name().to_owned(),
            reason: Reason::Hangs(cause),
        }
    }

    /// Takes `read` if it is new and good; tells once if it is new and stays bad.
    pub(super) fn look(&mut self, read: Result<Contents, TlsError>) {
        let seen = read.as_ref().ok().map(Contents::fingerprint);
        if seen == self.settled {
            self.suspect = None;
            return;
        }
        let loaded = read.and_then(|contents| self.source.make(&contents));
        match loaded {
            Ok(loaded) => self.take(seen, loaded),
            Err(error) if self.suspect == Some(seen) => self.refuse(seen, &error),
            Err(_) => self.suspect = Some(seen),
        }
    }

    fn take(&mut self, seen: Seen, loaded: Loaded<S::Made>) {
        tracing::info!(door = self.holder.name(), "tls: new certificate in use");
        self.metrics.count_taken(self.holder, loaded.expires);
        self.made.send_replace(loaded.made);
        self.settled = seen;
        self.suspect = None;
    }

    fn refuse(&mut self, seen: Seen, error: &TlsError) {
        let door = self.holder.name();
        tracing::error!(door, %error, "tls: new certificate refused, the old one stays in use");
        self.metrics.count_refused(self.holder);
        self.settled = seen;
        self.suspect = None;
    }
}
