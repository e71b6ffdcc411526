//! Refused settings.

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {rule}")]
pub struct SettingsError {
    /// The name of the setting.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
}
