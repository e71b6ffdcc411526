//! Cost of a request that only its end tells.

use core::ops::RangeInclusive;

use tollgate_core::units::Tokens;

use crate::cost;
use crate::host::{Host, HostError};

/// The property that has the status of a response.
const STATUS: &[&str] = &["response", "code"];

/// Where a rule finds at a request's end what it has cost in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinalCost {
    /// Responses whose requests cost nothing.
    pub(crate) free: Option<FreeStatuses>,
    /// The property that has the cost; without one it is what the request has taken.
    pub(crate) property: Option<Vec<String>>,
    /// Cost of a request that ended before its cost was known, if that is not what it has taken.
    pub(crate) on_abort: Option<Tokens>,
}

/// Statuses of responses whose requests cost nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreeStatuses {
    /// All others than these.
    AllBut(Vec<RangeInclusive<u16>>),
    /// These.
    Only(Vec<RangeInclusive<u16>>),
}

/// Cost of a stream that has ended, as its end tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadCost {
    /// It has cost so much.
    Known(Tokens),
    /// It has cost what it has taken.
    AsTaken,
    /// It ended too early, or the upstream did not say.
    Unknown,
    /// The upstream said something that is no cost.
    Invalid,
}

// === impl FinalCost ===

impl FinalCost {
    /// Returns the cost of the stream at hand, which has ended.
    ///
    /// # Errors
    /// If the host fails.
    pub(crate) fn read(&self, host: &impl Host) -> Result<ReadCost, HostError> {
        if let Some(free) = &self.free {
            match status(host)? {
                None => return Ok(ReadCost::Unknown),
                Some(status) if free.has(status) => return Ok(ReadCost::Known(Tokens::ZERO)),
                Some(_) => {}
            }
        }
        let Some(path) = &self.property else {
            return Ok(ReadCost::AsTaken);
        };
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let value = host.number_property(&path)?;
        Ok(match value.as_deref().map(cost::of_metadata) {
            None => ReadCost::Unknown,
            Some(None) => ReadCost::Invalid,
            Some(Some(cost)) => ReadCost::Known(cost),
        })
    }
}

// === impl FreeStatuses ===

impl FreeStatuses {
    fn has(&self, status: u16) -> bool {
        let is_in = |ranges: &[RangeInclusive<u16>]| {
            let mut ranges = ranges.iter();
            ranges.any(|range| range.contains(&status))
        };
        match self {
            Self::AllBut(ranges) => !is_in(ranges),
            Self::Only(ranges) => is_in(ranges),
        }
    }
}

// === free functions ===

/// The status of the response at hand, if there is one.
fn status(host: &impl Host) -> Result<Option<u16>, HostError> {
    let status = host.property(STATUS)?;
    let status = status.as_deref().and_then(|status| status.first_chunk());
    let status = status.map(|status| i64::from_le_bytes(*status));
    Ok(status
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| *status > 0))
}
