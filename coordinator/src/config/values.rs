//! Values that several sections have.

use std::path::PathBuf;

use crate::catalog::check::Rule;

/// Reads a truth value.
pub(super) fn yes_or_no(text: &str) -> Result<bool, Rule> {
    text.parse()
        .map_err(|_| format!("{text:?} is neither `true` nor `false`").into())
}

/// Reads a text that is not empty, such as a path.
pub(super) fn not_empty(text: &str) -> Result<PathBuf, Rule> {
    match text {
        "" => Err("is empty".into()),
        path => Ok(path.into()),
    }
}
