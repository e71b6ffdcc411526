//! The books of a master as bytes, for the next one.
//!
//! What is read is checked like anything else that comes over the wire: an error names the field.
//! Whether the books are consistent, and whether they fit, is for the core to say.

use prost::Message as _;
use tollgate_core::lease_server::Snapshot;

use crate::{FieldError, v1};

mod read;
mod write;

/// The form of the message, which grows when books are read in another way than before.
pub const FORM: u32 = 2;

/// Why bytes are not books.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not a message.
    #[error("the lease table cannot be read: {0}")]
    Wire(#[from] prost::DecodeError),
    /// A field that breaks a rule.
    #[error("the lease table cannot be used: {0}")]
    Field(#[from] FieldError),
}

/// `books` as bytes.
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    v1::Snapshot::from(snapshot).encode_to_vec()
}

/// The books that `bytes` say.
///
/// # Errors
/// If the bytes are no message, or a field of it is bad.
pub fn decode(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    Ok(v1::Snapshot::decode(bytes)?.try_into()?)
}

#[cfg(test)]
mod tests;
