//! A settable wall clock for one process, by Debian's libfaketime.
//!
//! Only `CLOCK_REALTIME` changes. The clocks that count from boot, by which leases and terms are measured,
//! go on as on a machine whose clock is set.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::artifact;

/// The wall clock of a process.
#[derive(Debug)]
pub struct WallClock {
    file: PathBuf,
    library: PathBuf,
}

// === impl WallClock ===

impl WallClock {
    /// Creates a correct clock that is set by writing `file`; `None` without libfaketime.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn try_new(file: &Path) -> Result<Option<Self>> {
        let Some(library) = artifact::faketime() else {
            return Ok(None);
        };
        let clock = Self {
            file: file.to_owned(),
            library,
        };
        clock.set(0)?;
        Ok(Some(clock))
    }

    /// Sets the clock off by so many seconds; the process notices within one second.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, off_by_s: i64) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{off_by_s:+}s\n"))?;
        Ok(fs::rename(new, &self.file)?)
    }

    /// Environment variables of a process with this clock.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let own = |name: &str, value: &Path| (name.into(), value.into());
        let fixed = |name: &str, value: &str| (name.into(), value.into());
        vec![
            own("LD_PRELOAD", &self.library),
            own("FAKETIME_TIMESTAMP_FILE", &self.file),
            fixed("FAKETIME_CACHE_DURATION", "1"),
            fixed("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}
