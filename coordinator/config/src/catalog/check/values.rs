//! Values that several sections have.

use std::time::Duration;

use super::Rule;

/// Reads a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, Rule> {
    humantime::parse_duration(text)
        .map_err(|cause| format!("{text:?} is not a duration like 10s or 100ms: {cause}").into())
}

/// Reads a duration of whole milliseconds, in which the protocol counts.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, Rule> {
    let duration = duration(text)?;
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(format!("{text:?} is not a whole number of milliseconds").into());
    }
    Ok(duration)
}

/// Reads a text that is not empty, such as a name or a path.
pub(crate) fn not_empty(text: &str) -> Result<String, Rule> {
    match text {
        "" => Err("is empty".into()),
        path => Ok(path.into()),
    }
}

/// Reads one of several words, each with its value.
pub(super) fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Rule> {
    let found = words.iter().find(|(word, _)| *word == text);
    let words = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
    let rule = || format!("{text:?} is none of {}", words().join(", ")).into();
    found.map(|(_, value)| *value).ok_or_else(rule)
}
