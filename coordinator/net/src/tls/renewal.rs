//! Certificates that are renewed while the coordinator runs.
//!
//! Files are looked at by content, not by time or inode: that also sees what Kubernetes does, which
//! swaps a symbolic link to a directory. A certificate and its key cannot be replaced in one step,
//! so a pair that does not fit is read once more before it is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{CertificateOwner, LoadedTls, TlsContents, TlsError, TlsFault, TlsMetrics};
use crate::files::FileReader;

/// Interval of reading the files: certificates are renewed days before they expire.
const INTERVAL: Duration = Duration::from_secs(1);

/// Source of TLS key material.
pub trait TlsSource: Clone + Send + 'static {
    /// Value that is made of the files.
    type Output: Send + Sync + 'static;

    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be read.
    fn read(&self) -> Result<TlsContents, TlsError>;

    /// The file that stands for all of them in errors.
    fn name(&self) -> &Path;

    /// Checks what was read.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of the file.
    fn make(&self, contents: &TlsContents) -> Result<LoadedTls<Self::Output>, TlsError>;
}

/// Newest value of files; changes when they do.
pub type Newest<T> = watch::Receiver<Arc<T>>;

/// Task that renews a value when its files change.
#[derive(Debug)]
pub(super) struct Renewal<S: TlsSource> {
    owner: CertificateOwner,
    source: S,
    metrics: TlsMetrics,
    value: watch::Sender<Arc<S::Output>>,
    /// Fingerprint of the files that were last taken or refused.
    settled: Fingerprint,
    /// Fingerprint of files that could not be used when they were first read.
    suspect: Option<Fingerprint>,
}

/// Hash of the files; `None` if they could not be read.
type Fingerprint = Option<[u8; 32]>;

// === impl Renewal ===

impl<S: TlsSource> Renewal<S> {
    /// Starts with the value of `source` for `owner`, and renews it from now on.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(super) fn start(
        owner: CertificateOwner,
        source: S,
        metrics: &TlsMetrics,
    ) -> Result<Newest<S::Output>, TlsError> {
        let contents = source.read()?;
        let loaded = source.make(&contents)?;
        metrics.start(owner, loaded.expires);
        let (sender, value) = watch::channel(loaded.value);
        let renewal = Self {
            owner,
            source,
            metrics: metrics.clone(),
            value: sender,
            settled: Some(contents.fingerprint()),
            suspect: None,
        };
        tokio::spawn(renewal.run());
        Ok(value)
    }

    /// Reads the files again and again until the value is not used any more.
    async fn run(mut self) {
        let files = FileReader::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.value.closed() => return,
            }
            let source = self.source.clone();
            // A file system can be slow, and the threads of the runtime are for connections.
            let read = files.run(move || source.read()).await;
            let hangs = |cause| TlsError::new(self.source.name(), TlsFault::Hangs(cause));
            let read = read.unwrap_or_else(|cause| Err(hangs(cause)));
            self.look(read);
        }
    }

    /// Takes `read` if it is new and good; tells once if it is new and stays bad.
    fn look(&mut self, read: Result<TlsContents, TlsError>) {
        let fingerprint = read.as_ref().ok().map(TlsContents::fingerprint);
        if fingerprint == self.settled {
            self.suspect = None;
            return;
        }
        let loaded = read.and_then(|contents| self.source.make(&contents));
        match loaded {
            Ok(loaded) => self.take(fingerprint, loaded),
            Err(error) if self.suspect == Some(fingerprint) => self.refuse(fingerprint, &error),
            Err(_) => self.suspect = Some(fingerprint),
        }
    }

    fn take(&mut self, fingerprint: Fingerprint, loaded: LoadedTls<S::Output>) {
        tracing::info!(
            certificate = self.owner.name(),
            "tls: new certificate in use"
        );
        self.metrics.count_taken(self.owner, loaded.expires);
        self.value.send_replace(loaded.value);
        self.settled = fingerprint;
        self.suspect = None;
    }

    fn refuse(&mut self, fingerprint: Fingerprint, error: &TlsError) {
        let certificate = self.owner.name();
        tracing::error!(certificate, %error, "tls: new certificate refused, the old one stays in use");
        self.metrics.count_refused(self.owner);
        self.settled = fingerprint;
        self.suspect = None;
    }
}
