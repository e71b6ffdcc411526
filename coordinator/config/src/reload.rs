//! Follows the configuration file.
//!
//! The content is looked at about twice a second, which sees every way of changing a file: an
//! editor that writes in place, one that renames, and Kubernetes, which swaps a symbolic link two
//! directories up and fools most watchers. SIGHUP looks at once. A file that is wrong is refused as
//! a whole; what was in force stays in force. A path that cannot be read, or not in time, is said
//! and counted, and looked at again like any other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_net::files::FileReader;

use crate::catalog::metrics::{CatalogMetrics, Reloaded};
use crate::writer::{CatalogHandle, WriteError};
use crate::{Config, LoadError, SourceFile};

/// Interval of reading the file.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Time for which a changed file must stay as it is before it is taken: an editor that writes in
/// place may not be done, and half a file may be a good one.
const SETTLE: Duration = Duration::from_millis(100);

/// Number of reads after which a missing file is reported: while it is replaced it can be away for a
/// moment.
const GONE_LOOKS: u32 = 10;

/// Follows one file.
#[derive(Debug)]
pub struct Reload {
    writer: CatalogHandle,
    metrics: CatalogMetrics,
    files: FileReader,
    /// Looks since the file was last read.
    failed: u32,
    /// Reason for which it cannot be read, as last logged.
    logged: Option<String>,
    /// The file that was last taken or refused.
    seen: Arc<SourceFile>,
}

/// Reason for which a changed file is not in force.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}")]
    Write(#[from] WriteError),
    #[error("it was not read: {0}")]
    Task(#[from] tokio::task::JoinError),
}

// === impl Reload ===

impl Reload {
    /// Follows the file that the configuration in force was read from; none if that was no file.
    pub fn new(writer: CatalogHandle, metrics: CatalogMetrics) -> Option<Self> {
        let seen = writer.config().borrow().source.clone()?;
        Some(Self {
            writer,
            metrics,
            files: FileReader::default(),
            failed: 0,
            logged: None,
            seen,
        })
    }

    /// Follows the file; looks at once whenever `now` says so, and ends with it.
    pub async fn run(mut self, mut now: mpsc::Receiver<()>) {
        loop {
            tokio::select! {
                call = now.recv() => match call {
                    Some(()) => self.take().await,
                    None => return,
                },
                () = tokio::time::sleep(LOOK_INTERVAL) => self.look().await,
            }
        }
    }

    /// Takes the file if it has changed and stays so for a moment.
    async fn look(&mut self) {
        let first = match self.read().await {
            Ok(first) => first,
            Err(error) => return self.note_unreadable(&error),
        };
        self.note_readable();
        if first == *self.seen {
            return;
        }
        tokio::time::sleep(SETTLE).await;
        if self.read().await.is_ok_and(|again| again == first) {
            self.take().await;
        }
    }

    /// Counts that the file cannot be read, and says so once for each reason.
    fn note_unreadable(&mut self, error: &LoadError) {
        self.failed = self.failed.saturating_add(1);
        if error.is_gone() && self.failed < GONE_LOOKS {
            return;
        }
        self.metrics.count_reload(Reloaded::Unreadable);
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            tracing::error!("configuration: cannot be read, the previous one stays: {error}");
            self.logged = Some(error);
        }
    }

    fn note_readable(&mut self) {
        self.failed = 0;
        if self.logged.take().is_some() {
            let file = self.seen.path.display();
            tracing::info!(%file, "configuration: can be read again");
        }
    }

    /// Puts what the file says now in force, or says what is wrong with it.
    async fn take(&mut self) {
        let result = match self.reload().await {
            Ok(()) => Reloaded::Taken,
            Err(error) => {
                tracing::error!("configuration: refused, the previous one stays: {error}");
                Reloaded::Refused
            }
        };
        self.metrics.count_reload(result);
    }

    async fn reload(&mut self) -> Result<(), ReloadError> {
        let source = self.read().await?;
        self.seen = Arc::new(source.clone());
        let old = self.writer.config().borrow().clone();
        let flags = old.flags.clone();
        let new = tokio::task::spawn_blocking(move || Config::of_file(source, flags)).await??;
        let restart = old.needs_restart(&new);
        self.writer.reload(new).await?;
        if !restart.is_empty() {
            let fields = restart.join(", ");
            tracing::warn!(fields, "configuration: changed fields need a restart");
        }
        let limits = self.writer.catalog().file().limits.count();
        tracing::info!(limits, "configuration: applied");
        Ok(())
    }

    /// Reads the file where that may block, as on a file system of the network.
    async fn read(&self) -> Result<SourceFile, LoadError> {
        let path = self.seen.path.clone();
        let read = self.files.run(move || SourceFile::read(&path)).await;
        read.unwrap_or_else(|cause: io::Error| {
            let file = self.seen.path.clone();
            Err(LoadError::Read { file, cause })
        })
    }
}
