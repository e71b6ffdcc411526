//! Records: what was written, and which write it was.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{RecordKey, RecordKind, StoreError};
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::{CatalogObject, StoredObject};
use crate::config::{ConfigErrors, check_attachment, check_group, check_override};

/// Unknown fields are left alone: a later version of the same format may add some.
#[derive(Deserialize)]
struct StoreRecord<T> {
    revision: u64,
    spec: T,
}

/// Why a record is not good.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    #[error(transparent)]
    Value(#[from] ConfigErrors),
    #[error("revision {0} is more than {REVISION_MAX}")]
    Revision(u64),
}

/// The highest revision that is believed: more writes than there will ever be, so that nothing
/// written past the API brings the count to its end. Programs in which a number is a double read it
/// exactly.
pub(crate) const REVISION_MAX: u64 = (1 << 53) - 1;

// === free functions ===

/// The record of an object whose JSON is `written`.
pub(crate) fn encode(written: &str, revision: u64) -> Vec<u8> {
    format!("{{\"revision\":{revision},\"spec\":{written}}}").into_bytes()
}

/// What the record of `key` says.
///
/// # Errors
/// If it is none, or what it says is wrong.
pub(crate) fn decode(
    key: &RecordKey,
    record: &[u8],
) -> Result<StoredObject<CatalogObject>, StoreError> {
    let decoded = match key.kind {
        RecordKind::Group => object(record, |spec: GroupSpec| {
            let group = check_group(&key.name, spec)?;
            Ok(CatalogObject::Group(Arc::new(group)))
        }),
        RecordKind::Attachment(kind) => object(record, |spec: AttachmentSpec| {
            let attachment = check_attachment(kind, &key.name, spec)?;
            Ok(CatalogObject::Attachment(attachment))
        }),
        RecordKind::Override => object(record, |spec: LimitsSpec| {
            let limits = check_override(&key.name, &spec)?;
            Ok(CatalogObject::Override(Arc::new(limits)))
        }),
    };
    decoded.map_err(|error| StoreError::Record {
        key: key.to_string(),
        cause: error.to_string(),
    })
}

fn object<T: DeserializeOwned>(
    record: &[u8],
    check: impl FnOnce(T) -> Result<CatalogObject, ConfigErrors>,
) -> Result<StoredObject<CatalogObject>, RecordError> {
    let StoreRecord { revision, spec } = serde_json::from_slice(record)?;
    if revision > REVISION_MAX {
        return Err(RecordError::Revision(revision));
    }
    Ok(StoredObject {
        value: check(spec)?,
        revision,
    })
}
