//! Conditions under which a scope rule is about the request at hand.

use crate::host::{Host, HostError};
use crate::key::decoded_leniently;

/// Condition on a request: all fields that are set must hold, of a list any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Beginning of the path, once it is percent-decoded.
    pub(crate) path_prefixes: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<(String, Expected)>,
    /// Condition that must not hold.
    pub(crate) not: Option<Box<Self>>,
}

/// Condition on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Present,
    Absent,
    /// Its first value is this one.
    Equal(String),
}

// === impl Condition ===

impl Condition {
    /// Returns whether the request at hand is meant.
    pub(crate) fn holds<H: Host>(&self, host: &H) -> Result<bool, HostError> {
        if !self.methods.is_empty() {
            let method = host.request_header(":method")?.unwrap_or_default();
            if !self.methods.iter().any(|one| *one.as_bytes() == *method) {
                return Ok(false);
            }
        }
        if !self.path_prefixes.is_empty() {
            let path = host.request_header(":path")?.unwrap_or_default();
            let path = decoded_leniently(&path);
            let mut prefixes = self.path_prefixes.iter();
            if !prefixes.any(|prefix| path.starts_with(prefix.as_bytes())) {
                return Ok(false);
            }
        }
        for (name, expected) in &self.headers {
            let value = host.request_header(name)?;
            let holds = match expected {
                Expected::Present => value.is_some(),
                Expected::Absent => value.is_none(),
                Expected::Equal(text) => value.as_deref() == Some(text.as_bytes()),
            };
            if !holds {
                return Ok(false);
            }
        }
        match &self.not {
            Some(not) => Ok(!not.holds(host)?),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fake::{Fake, Process};

    fn condition(json: &str) -> Condition {
        let json = format!(
            r#"{{"coordinator": "c",
                "scopes": [{{"name": "a", "key": {{"constant": "x"}}, "when": {json}}}]}}"#
        );
        let (mut config, unknown) = Config::parse(json.as_bytes()).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        config.rules.remove(0).when.unwrap()
    }

    #[test]
    fn all_that_is_set_must_hold_and_of_a_list_any() {
        let request = [
            (":method", "POST"),
            (":path", "/v%31/orders?x=1"),
            ("x-canary", "yes"),
        ];
        let rows = [
            (r#"{"methods": ["POST"]}"#, true),
            (r#"{"methods": ["GET", "POST"]}"#, true),
            (r#"{"methods": ["GET"]}"#, false),
            (r#"{"path_prefix": "/v1/"}"#, true),
            (r#"{"path_prefix": ["/v2/", "/v1/o"]}"#, true),
            (r#"{"path_prefix": "/V1/"}"#, false),
            (r#"{"path_prefix": "/v1/", "methods": ["GET"]}"#, false),
            (r#"{"headers": {"X-Canary": true}}"#, true),
            (r#"{"headers": {"x-canary": false}}"#, false),
            (r#"{"headers": {"x-other": false}}"#, true),
            (r#"{"headers": {"x-canary": "yes"}}"#, true),
            (r#"{"headers": {"x-canary": "no"}}"#, false),
            (r#"{"not": {"methods": ["GET"]}}"#, true),
            (
                r#"{"methods": ["POST"], "not": {"path_prefix": "/v1"}}"#,
                false,
            ),
        ];
        let host = Fake::new(&Process::new());
        host.set_headers(&request);
        for (json, want) in rows {
            assert_eq!(condition(json).holds(&host), Ok(want), "{json}");
        }
    }
}
