//! Snapshot of a master's lease table as bytes, for the next one.
//!
//! Fields are checked like anything else that comes over the wire: an error names the field. The
//! core checks whether the snapshot is consistent, and whether it fits.

use prost::Message as _;
use tollgate_core::lease_server::Snapshot;

use crate::{FieldError, v1};

mod quota;
mod read;
mod write;

/// Form of the message, which grows when snapshots are read in another way than before.
pub const FORM: u32 = 2;

/// Error in the bytes of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not a message.
    #[error("the lease table cannot be read: {0}")]
    Wire(#[from] prost::DecodeError),
    /// A field that breaks a rule.
    #[error("the lease table cannot be used: {0}")]
    Field(#[from] FieldError),
}

/// Writes `snapshot` as bytes.
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    v1::Snapshot::from(snapshot).encode_to_vec()
}

/// Reads the snapshot in `bytes`.
///
/// # Errors
/// If the bytes are no message, or a field of it is bad.
pub fn decode(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    Ok(v1::Snapshot::decode(bytes)?.try_into()?)
}

#[cfg(test)]
mod tests;
