//! The bytes of files of TLS.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{TlsError, TlsFault};
use crate::files;

/// The largest file, in bytes: a bundle of a whole public root store is a quarter of it.
pub(super) const FILE_LEN_MAX: u64 = 1 << 20;

/// Permission of all users to read.
const WORLD_READABLE: u32 = 0o004;

/// Content of the files of one owner, all read at about the same time.
#[derive(Clone)]
pub struct TlsContents {
    /// Empty where there is none, as the key.
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) ca: Option<Vec<u8>>,
    /// Set if every user of the machine can read the key.
    pub(super) key_is_open: bool,
}

// === impl TlsContents ===

impl TlsContents {
    /// Reads a certificate with its key, if there are such, and issuers, if there are such.
    ///
    /// # Errors
    /// If one of them cannot be read or is too large.
    pub(super) fn of(
        identity: Option<(&Path, &Path)>,
        ca: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let bytes = |path| read(path).map(|(bytes, _)| bytes);
        let (key, mode) = match identity {
            Some((_, key)) => read(key)?,
            None => Default::default(),
        };
        let cert = identity.map(|(cert, _)| bytes(cert)).transpose()?;
        Ok(Self {
            cert: cert.unwrap_or_default(),
            key,
            ca: ca.map(bytes).transpose()?,
            key_is_open: mode & WORLD_READABLE != 0,
        })
    }

    /// Tells contents apart without keeping a second copy of a key.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let ca = self.ca.as_deref().unwrap_or_default();
        for part in [&self.cert, &self.key, ca] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl std::fmt::Debug for TlsContents {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsContents")
            .field("cert", &self.cert.len())
            .finish_non_exhaustive()
    }
}

// === free functions ===

/// The bytes of `path`, and its permissions.
fn read(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let content = files::read(path, FILE_LEN_MAX + 1);
    let content = content.map_err(|cause| TlsError::new(path, TlsFault::Read(cause)))?;
    if content.0.len() as u64 > FILE_LEN_MAX {
        return Err(TlsError::new(path, TlsFault::TooLarge));
    }
    Ok(content)
}
