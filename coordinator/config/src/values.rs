//! Values that several sections have.

use crate::catalog::check::Rule;

/// Reads a truth value.
pub(super) fn yes_or_no(text: &str) -> Result<bool, Rule> {
    text.parse()
        .map_err(|_| format!("{text:?} is neither `true` nor `false`").into())
}
