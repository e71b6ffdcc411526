//! From the shape of the file to values that are good.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_saphyr::{Location, Spanned};
use tollgate_core::node::Bounds;

use super::admin::admin;
use super::error::{ConfigError, ConfigErrors, Problem};
use super::limit::limit;
use super::raw::{RawBounds, RawConfig, RawLimit, RawListen, Text};
use super::{Config, Listen};
use crate::limits::{Limits, LimitsBuilder, Pattern};

const BOUNDS: Bounds = Bounds {
    max_resources: 100_000,
    max_clients_per_resource: 100_000,
};

/// More than any machine holds; keeps a typing error from meaning "no bound".
const COUNT_MAX: usize = 1_000_000_000;

/// What has been found wrong so far.
#[derive(Debug, Default)]
pub(super) struct Check {
    errors: Vec<ConfigError>,
}

/// Checks a whole file.
pub(super) fn config(raw: &RawConfig) -> Result<Config, ConfigErrors> {
    let mut check = Check::default();
    let listen = listen(&mut check, raw.listen.as_ref());
    let admin = admin(&mut check, raw.admin.as_ref());
    let bounds = bounds(&mut check, raw.bounds.as_ref());
    match limits(&mut check, raw.limits.as_ref()) {
        Some(limits) if check.errors.is_empty() => Ok(Config {
            listen,
            admin,
            bounds,
            limits,
        }),
        _ => {
            let mut errors = check.errors;
            errors.sort_by_key(|error| (error.line, error.column));
            Err(ConfigErrors(errors))
        }
    }
}

// === impl Check ===

impl Check {
    /// Notes that `field`, which stands `at`, has `problem`.
    pub(super) fn refuse(
        &mut self,
        at: Location,
        field: impl Into<String>,
        problem: impl Into<Problem>,
    ) {
        self.errors.push(ConfigError::new(at, field, problem));
    }

    /// What `text` says; none if it is absent or, which is noted, wrong.
    pub(super) fn value<T>(
        &mut self,
        text: Option<&Text>,
        field: &str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let text = text?;
        match parse(&text.value) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.refuse(text.referenced, field, problem);
                None
            }
        }
    }
}

// === free functions ===

fn listen(check: &mut Check, raw: Option<&RawListen>) -> Listen {
    let mut listen = Listen::default();
    let Some(raw) = raw else { return listen };
    if let Some(grpc) = check.value(raw.grpc.as_ref(), "listen.grpc", address) {
        listen.grpc = grpc;
    }
    if let Some(http) = check.value(raw.http.as_ref(), "listen.http", address) {
        listen.http = http;
    }
    if listen.grpc == listen.http && listen.grpc.port() != 0 {
        let at = raw.http.as_ref().or(raw.grpc.as_ref());
        let at = at.map_or(Location::UNKNOWN, |text| text.referenced);
        check.refuse(at, "listen.http", Problem::SameAddress);
    }
    listen
}

fn address(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| Problem::Address(text.to_owned()))
}

fn bounds(check: &mut Check, raw: Option<&RawBounds>) -> Bounds {
    let mut bounds = BOUNDS;
    let Some(raw) = raw else { return bounds };
    let max = raw.max_resources.as_ref();
    if let Some(max) = check.value(max, "bounds.max_resources", count) {
        bounds.max_resources = max;
    }
    let max = raw.max_clients_per_resource.as_ref();
    if let Some(max) = check.value(max, "bounds.max_clients_per_resource", count) {
        bounds.max_clients_per_resource = max;
    }
    bounds
}

fn count(text: &str) -> Result<usize, Problem> {
    let count = text.parse().ok();
    let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| Problem::Count(text.to_owned()))
}

fn limits(check: &mut Check, raw: Option<&Spanned<Vec<Spanned<RawLimit>>>>) -> Option<Limits> {
    let Some(raw) = raw else {
        check.refuse(Location::UNKNOWN, "limits", Problem::Missing);
        return None;
    };
    unique(check, &raw.value);
    rest_is_last(check, raw);
    let mut builder = LimitsBuilder::default();
    let mut rest = None;
    for (i, entry) in raw.value.iter().enumerate() {
        match limit(check, i, entry) {
            Some((Pattern::Exact(scope), limit)) => builder.exact(scope, limit),
            Some((Pattern::Glob(glob), limit)) => builder.glob(glob, limit),
            Some((Pattern::Rest, limit)) => rest = Some(limit),
            None => {}
        }
    }
    match builder.build(rest?) {
        Ok(limits) => Some(limits),
        Err(error) => {
            check.refuse(raw.referenced, "limits", error);
            None
        }
    }
}

/// No two limits match the same.
fn unique(check: &mut Check, limits: &[Spanned<RawLimit>]) {
    let mut seen = HashMap::new();
    for (i, limit) in limits.iter().enumerate() {
        let Some(text) = &limit.value.pattern else {
            continue;
        };
        let first = *seen.entry(text.value.as_str()).or_insert(i);
        if first != i {
            let pattern = text.value.clone();
            let problem = Problem::Duplicate { pattern, first };
            check.refuse(text.referenced, format!("limits[{i}].match"), problem);
        }
    }
}

fn rest_is_last(check: &mut Check, limits: &Spanned<Vec<Spanned<RawLimit>>>) {
    let patterns = limits.value.iter().map(|limit| &limit.value.pattern);
    let mut patterns = patterns.flatten().enumerate();
    let Some((i, text)) = patterns.find(|(_, pattern)| pattern.value == "*") else {
        return check.refuse(limits.referenced, "limits", Problem::NoRest);
    };
    let after = patterns.count();
    if after > 0 {
        let problem = Problem::RestNotLast { after };
        check.refuse(text.referenced, format!("limits[{i}].match"), problem);
    }
}
