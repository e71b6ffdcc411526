//! From requests of Envoy's rate limit service to scopes and hits.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_config::{RLS_ENTRIES_MAX, RlsDomain, RlsDomains, RlsRule};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_proto::envoy::r#type::v3::RateLimitUnit;

/// The most descriptors of a request.
pub(super) const DESCRIPTORS_MAX: usize = 64;

/// Request that has been looked up in its domain.
#[derive(Debug, PartialEq)]
pub(super) struct Ask<'a> {
    /// The domain, if the configuration has it.
    pub(super) domain: Option<&'a RlsDomain>,
    /// For each descriptor, in order, what it asks for; `None` where no rule holds for it.
    pub(super) descriptors: Vec<Option<DescriptorAsk<'a>>>,
}

/// Request of one descriptor.
#[derive(Debug, PartialEq)]
pub(super) struct DescriptorAsk<'a> {
    pub(super) rule: &'a RlsRule,
    pub(super) scope: String,
    pub(super) hits: Hits,
    /// A limit that the proxy's configuration brings along.
    pub(super) limit: Option<OwnLimit>,
}

/// Use of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// None: the descriptor only looks whether there is one left.
    Look,
    /// So many are taken.
    Take(u64),
    /// So many are given back.
    GiveBack(u64),
}

/// Limit of a descriptor, which holds besides that of its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OwnLimit {
    /// Requests in each window.
    pub(super) requests: u32,
    /// Length of the window.
    pub(super) window: Duration,
}

/// Reason for which a request cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AskError {
    /// It has no domain.
    #[error("domain: is empty")]
    NoDomain,
    /// It has no descriptors.
    #[error("descriptors: is empty")]
    NoDescriptors,
    /// It has more descriptors than are looked at.
    #[error("descriptors: has {0} entries, more than {DESCRIPTORS_MAX}")]
    Descriptors(usize),
    /// A descriptor has more entries than are looked at.
    #[error("descriptors[{index}].entries: has {count} entries, more than {RLS_ENTRIES_MAX}")]
    Entries {
        /// Its place in the request.
        index: usize,
        /// Their number.
        count: usize,
    },
    /// A descriptor's limit has no unit of time.
    #[error("descriptors[{index}].limit.unit: {unit} is no unit of time")]
    Unit {
        /// Its place in the request.
        index: usize,
        /// The number that stands for the unit.
        unit: i32,
    },
}

// === impl Ask ===

impl<'a> Ask<'a> {
    /// Looks up a request.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(super) fn new(
        domains: &'a RlsDomains,
        request: &RateLimitRequest,
    ) -> Result<Self, AskError> {
        if request.domain.is_empty() {
            return Err(AskError::NoDomain);
        }
        let count = request.descriptors.len();
        match count {
            0 => return Err(AskError::NoDescriptors),
            1..=DESCRIPTORS_MAX => {}
            _ => return Err(AskError::Descriptors(count)),
        }
        let domain = domains.get(&request.domain);
        let mut descriptors = Vec::with_capacity(count);
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let hits = Hits::new(request.hits_addend, descriptor);
            descriptors.push(ask(domain, index, descriptor, hits)?);
        }
        leave_out_replaced(&mut descriptors);
        Ok(Self {
            domain,
            descriptors,
        })
    }
}

// === impl Hits ===

impl Hits {
    /// Returns the hits of a descriptor in a request with `hits_addend`, where 0 counts as 1. A
    /// descriptor's own 0 is meant.
    fn new(hits_addend: u32, descriptor: &RateLimitDescriptor) -> Self {
        let of_request = u64::from(hits_addend.max(1));
        match descriptor.hits_addend.unwrap_or(of_request) {
            0 => Self::Look,
            hits if descriptor.is_negative_hits => Self::GiveBack(hits),
            hits => Self::Take(hits),
        }
    }
}

// === free functions ===

fn ask<'a>(
    domain: Option<&'a RlsDomain>,
    index: usize,
    descriptor: &RateLimitDescriptor,
    hits: Hits,
) -> Result<Option<DescriptorAsk<'a>>, AskError> {
    let count = descriptor.entries.len();
    if count > RLS_ENTRIES_MAX {
        return Err(AskError::Entries { index, count });
    }
    let limit = descriptor.limit.as_ref();
    let limit = limit.map(|limit| own_limit(index, limit)).transpose()?;
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| (entry.key.as_str(), entry.value.as_str()));
    let found = domain.and_then(|domain| domain.find(entries));
    Ok(found.map(|(rule, scope)| DescriptorAsk {
        rule,
        scope,
        hits,
        limit,
    }))
}

fn own_limit(index: usize, limit: &RateLimitOverride) -> Result<OwnLimit, AskError> {
    let days = match RateLimitUnit::try_from(limit.unit) {
        Ok(RateLimitUnit::Second) => return Ok(OwnLimit::per(limit, 1)),
        Ok(RateLimitUnit::Minute) => return Ok(OwnLimit::per(limit, 60)),
        Ok(RateLimitUnit::Hour) => return Ok(OwnLimit::per(limit, 3600)),
        Ok(RateLimitUnit::Day) => 1,
        Ok(RateLimitUnit::Month) => 30,
        Ok(RateLimitUnit::Year) => 365,
        Ok(RateLimitUnit::Unknown) | Err(_) => {
            let unit = limit.unit;
            return Err(AskError::Unit { index, unit });
        }
    };
    Ok(OwnLimit::per(limit, days * 24 * 3600))
}

/// Leaves out the descriptors whose rule another descriptor's rule replaces.
fn leave_out_replaced(descriptors: &mut [Option<DescriptorAsk<'_>>]) {
    let rules = descriptors.iter().flatten().map(|ask| ask.rule);
    let replaced: BTreeSet<&str> = rules
        .flat_map(|rule| rule.replaces.iter().map(String::as_str))
        .collect();
    let is_replaced = |ask: &DescriptorAsk<'_>| {
        let name = ask.rule.name.as_deref();
        name.is_some_and(|name| replaced.contains(name))
    };
    for descriptor in descriptors {
        if descriptor.as_ref().is_some_and(is_replaced) {
            *descriptor = None;
        }
    }
}

// === impl OwnLimit ===

impl OwnLimit {
    const fn per(limit: &RateLimitOverride, seconds: u64) -> Self {
        Self {
            requests: limit.requests_per_unit,
            window: Duration::from_secs(seconds),
        }
    }
}

#[cfg(test)]
mod tests;
