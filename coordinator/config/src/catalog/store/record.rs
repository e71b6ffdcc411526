//! Records: an object's written form, and the number of its write.

use serde::Deserialize;
use serde_json::Value;

use super::{RecordKey, RecordKind, StoreError};
use crate::catalog::check::ConfigErrors;
use crate::catalog::{CatalogObject, GroupKind, ObjectKind, OverrideKind, RaiseKind, StoredObject};

/// Unknown fields are ignored: a later version of the same format may add some.
#[derive(Deserialize)]
struct StoreRecord {
    revision: u64,
    spec: Value,
}

/// Reason for which a record is not valid.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    #[error(transparent)]
    Value(#[from] ConfigErrors),
    #[error("revision {0} is more than {REVISION_MAX}")]
    Revision(u64),
}

/// Highest accepted revision: more writes than there will ever be, so that a record written past
/// the API cannot exhaust the count. Programs in which a number is a double read it exactly.
pub(crate) const REVISION_MAX: u64 = (1 << 53) - 1;

// === free functions ===

/// Encodes the record of an object whose JSON is `written`.
pub(crate) fn encode(written: &str, revision: u64) -> Vec<u8> {
    format!("{{\"revision\":{revision},\"spec\":{written}}}").into_bytes()
}

/// Decodes the record of `key`.
///
/// # Errors
/// If it is not a record, or its object is not valid.
pub(crate) fn decode(
    key: &RecordKey,
    record: &[u8],
) -> Result<StoredObject<CatalogObject>, StoreError> {
    let decoded = match key.kind {
        RecordKind::Group => object(GroupKind, &key.name, record),
        RecordKind::Attachment(kind) => object(kind, &key.name, record),
        RecordKind::Override => object(OverrideKind, &key.name, record),
        RecordKind::Raise => object(RaiseKind, &key.name, record),
    };
    decoded.map_err(|error| StoreError::Record {
        key: key.to_string(),
        cause: error.to_string(),
    })
}

fn object<K: ObjectKind>(
    kind: K,
    name: &str,
    record: &[u8],
) -> Result<StoredObject<CatalogObject>, RecordError> {
    let StoreRecord { revision, mut spec } = serde_json::from_slice(record)?;
    if revision > REVISION_MAX {
        return Err(RecordError::Revision(revision));
    }
    remove_learning(&mut spec);
    Ok(StoredObject {
        value: kind.check(name, serde_json::from_value(spec)?)?,
        revision,
    })
}

/// Removes the field `learning` of limits that 0.1.0 wrote: learning mode lasts as long as a lease.
fn remove_learning(spec: &mut Value) {
    let units = spec.as_object_mut().into_iter().flatten();
    for (_, unit) in units {
        if let Some(fields) = unit.as_object_mut() {
            fields.remove("learning");
        }
    }
}
