//! The bytes of a door's files.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{Files, Reason, TlsError};

/// The largest file, in bytes: a bundle of a whole public root store is a quarter of it.
pub(super) const FILE_LEN_MAX: u64 = 1 << 20;

/// Read by everybody.
const WORLD_READABLE: u32 = 0o004;

/// The files of a door as they were read, all three at about the same time.
#[derive(Clone)]
pub struct Contents {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
    /// Everybody on the machine can read the key.
    pub(super) key_is_open: bool,
}

// === impl Contents ===

impl Contents {
    /// Reads the files.
    ///
    /// # Errors
    /// If one of them cannot be read or is too large.
    pub fn read(files: &Files) -> Result<Self, TlsError> {
        let (key, mode) = read(&files.key)?;
        let client_ca = files.client_ca.as_deref().map(read).transpose()?;
        Ok(Self {
            cert: read(&files.cert)?.0,
            key,
            client_ca: client_ca.map(|(bytes, _)| bytes),
            key_is_open: mode & WORLD_READABLE != 0,
        })
    }

    /// Tells contents apart without keeping a second copy of a key.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let client_ca = self.client_ca.as_deref().unwrap_or_default();
        for part in [&self.cert, &self.key, client_ca] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl std::fmt::Debug for Contents {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents")
            .field("cert", &self.cert.len())
            .finish_non_exhaustive()
    }
}

// === free functions ===

/// The bytes of `path`, and its permissions.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let refuse = |reason| TlsError {
        file: path.to_owned(),
        reason,
    };
    let (bytes, mode) = bounded(path).map_err(|cause| refuse(Reason::Read(cause)))?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(refuse(Reason::TooLarge));
    }
    Ok((bytes, mode))
}

/// No more of `path` than tells that it is too large, and its permissions.
fn bounded(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    Ok((bytes, mode))
}
