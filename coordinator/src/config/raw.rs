//! The shape of the file, with the place of every value.
//!
//! All scalars are text here: what a number or a duration may be is checked in one place, with
//! messages that quote what stands in the file.

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::admin::RawAdmin;
use super::error::{ConfigError, ConfigErrors, Problem};
use super::{FILE_LEN_MAX, LIMITS_MAX};

/// A scalar as it stands in the file.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) listen: Option<RawListen>,
    pub(super) admin: Option<RawAdmin>,
    pub(super) bounds: Option<RawBounds>,
    pub(super) limits: Option<Spanned<Vec<Spanned<RawLimit>>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListen {
    pub(super) grpc: Option<Text>,
    pub(super) http: Option<Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBounds {
    pub(super) max_resources: Option<Text>,
    pub(super) max_clients_per_resource: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimit {
    #[serde(rename = "match")]
    pub(super) pattern: Option<Text>,
    pub(super) requests: Option<Spanned<RawRequests>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRequests {
    pub(super) rate: Option<Text>,
    pub(super) burst: Option<Text>,
    pub(super) safe: Option<Text>,
    pub(super) lease: Option<Text>,
    pub(super) refresh: Option<Text>,
    pub(super) min_refresh: Option<Text>,
    pub(super) learning: Option<Text>,
    pub(super) headroom: Option<Text>,
}

// === free functions ===

/// Reads the YAML of a file.
pub(super) fn read(text: &str) -> Result<RawConfig, ConfigErrors> {
    let refuse = |at, problem| ConfigErrors(vec![ConfigError::new(at, "", problem)]);
    if text.len() > FILE_LEN_MAX {
        return Err(refuse(Location::UNKNOWN, Problem::FileTooLarge(text.len())));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let raw: Option<RawConfig> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().unwrap_or(Location::UNKNOWN);
            refuse(at, Problem::Shape(shape(&error)))
        })?;
    let raw = raw.unwrap_or_default();
    match &raw.limits {
        Some(limits) if limits.value.len() > LIMITS_MAX => {
            let problem = Problem::TooMany(limits.value.len());
            Err(ConfigErrors(vec![ConfigError::new(
                limits.referenced,
                "limits",
                problem,
            )]))
        }
        _ => Ok(raw),
    }
}

/// What the reader says, without the place, which stands in front, and without advice to
/// programmers.
fn shape(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("field `{key}` is here twice"),
        Error::DuplicateMappingKey { .. } => "a field is here twice".to_owned(),
        Error::MultipleDocuments { .. } => "a second YAML document: only one is read".to_owned(),
        other => {
            let text = other.to_string();
            let place = other.location().map_or_else(String::new, |at| {
                format!(" at line {}, column {}", at.line(), at.column())
            });
            text.strip_suffix(&place).unwrap_or(&text).to_owned()
        }
    }
}
