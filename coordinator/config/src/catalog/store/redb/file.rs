//! The file of a store while it is open.
//!
//! redb keeps writing to the file that it opened, even when its path leads nowhere or to another
//! file, and that file is gone after a restart. So the path is compared with the open file before
//! and after every write.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tollgate_net::files::check_regular;

/// The file that a path led to when the store was opened.
///
/// It is kept open, because the system may give the number of a deleted file to a new one.
#[derive(Debug)]
pub(super) struct PinnedFile(File);

/// Reason for which a path does not lead to the store any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DetachCause {
    #[error("was deleted or moved away while this coordinator has it open")]
    Gone,
    #[error("was replaced by another file while this coordinator has it open")]
    Replaced,
    #[error("cannot be looked at any more: {0}")]
    Unreadable(String),
}

// === impl PinnedFile ===

impl PinnedFile {
    /// The file at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Checks that `path` leads to this file. May block.
    pub(super) fn check(&self, path: &Path) -> Result<(), DetachCause> {
        let unreadable = |error: io::Error| DetachCause::Unreadable(error.to_string());
        let there = match fs::metadata(path) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(DetachCause::Gone),
            Err(error) => return Err(unreadable(error)),
        };
        let pinned = self.0.metadata().map_err(unreadable)?;
        if (there.dev(), there.ino()) != (pinned.dev(), pinned.ino()) {
            return Err(DetachCause::Replaced);
        }
        Ok(())
    }
}

// === free functions ===

/// Whether a store exists at `path`.
///
/// # Errors
/// If it is something else, or an empty file: a store is never empty.
pub(super) fn exists(path: &Path) -> io::Result<bool> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    check_regular(&metadata)?;
    if metadata.len() == 0 {
        return Err(io::Error::other(
            "the file is empty, which a store never is",
        ));
    }
    Ok(true)
}

/// Whether the newer of the last two commits of the store at `path` is in force.
///
/// If not, a crash cut a write short before it could be acknowledged, or the one bit that says it
/// was damaged, which no checksum covers. The layout is that of redb's file format 3.
pub(super) fn newer_commit_is_in_force(path: &Path) -> io::Result<bool> {
    const FLAGS: usize = 9;
    const SECOND_IN_FORCE: u8 = 1;
    const COMMIT_NUMBERS: [usize; 2] = [168, 296];
    let mut header = [0; 320];
    File::open(path)?.read_exact(&mut header)?;
    let number = |at: usize| {
        let bytes = header.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let [first, second] = COMMIT_NUMBERS.map(number);
    let second_in_force = header[FLAGS] & SECOND_IN_FORCE != 0;
    Ok(second_in_force == (second > first))
}

/// Makes the file's name durable, so that a crash of the machine does not lose it.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
