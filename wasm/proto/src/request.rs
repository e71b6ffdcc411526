//! Messages of a client on the wire: refreshes and releases.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::lease::{
    Band, Claim, ClientId, ClientRun, Demand, DrawRequest, Epoch, IdError, LeaseRequest, Priority,
    ResourceId, Run, Unit,
};
pub use tollgate_core::message::{Refresh, Release, SCOPES_MAX, ScopeRefresh};
use tollgate_core::traffic::{Counts, Tally};
use tollgate_core::units::{Capacity, Tokens};

use crate::field::{FieldError, Rule};
use crate::{number, v1};

// === impl Refresh ===

impl TryFrom<v1::RefreshRequest> for Refresh {
    type Error = FieldError;

    fn try_from(message: v1::RefreshRequest) -> Result<Self, FieldError> {
        let run = (message.incarnation, message.term);
        let client = client_run(&message.client_id, run)?;
        check_len("scopes", message.scopes.len())?;
        let scopes = message.scopes.iter().enumerate();
        let scopes = scopes
            .map(|(i, scope)| ScopeRefresh::try_from(scope).map_err(|e| e.within("scopes", i)))
            .collect::<Result<Vec<_>, _>>()?;
        match repeated(scopes.iter().map(|scope| &scope.scope)) {
            Some((of, i)) => {
                Err(FieldError::new("scope", Rule::Duplicate { of }).within("scopes", i))
            }
            None => Ok(Self { client, scopes }),
        }
    }
}

impl From<&Refresh> for v1::RefreshRequest {
    fn from(refresh: &Refresh) -> Self {
        let (incarnation, term) = from_run(refresh.client.run);
        Self {
            client_id: refresh.client.id.as_str().to_owned(),
            scopes: refresh.scopes.iter().map(Into::into).collect(),
            incarnation,
            term,
        }
    }
}

// === impl ScopeRefresh ===

impl TryFrom<&v1::ScopeRequest> for ScopeRefresh {
    type Error = FieldError;

    fn try_from(message: &v1::ScopeRequest) -> Result<Self, FieldError> {
        let scope = scope_id(&message.scope).map_err(|error| FieldError::new("scope", error))?;
        if message.units.is_empty() {
            return Err(FieldError::new("units", Rule::Empty));
        }
        let units = message.units.iter().enumerate();
        let asks = units
            .map(|(i, unit)| unit_ask(unit).map_err(|e| e.within("units", i)))
            .collect::<Result<Vec<_>, _>>()?;
        match repeated(asks.iter().map(|(unit, _)| unit)) {
            Some((of, i)) => {
                Err(FieldError::new("unit", Rule::Duplicate { of }).within("units", i))
            }
            None => Ok(Self { scope, asks }),
        }
    }
}

impl From<&ScopeRefresh> for v1::ScopeRequest {
    fn from(asks: &ScopeRefresh) -> Self {
        Self {
            scope: asks.scope.as_ref().to_owned(),
            units: asks.asks.iter().map(Into::into).collect(),
        }
    }
}

// === impl LeaseRequest ===

impl From<&(Unit, LeaseRequest)> for v1::UnitRequest {
    fn from((unit, ask): &(Unit, LeaseRequest)) -> Self {
        let mut message = Self {
            unit: number::from_unit(*unit),
            sequence: ask.sequence,
            has: number::from_capacity(ask.has),
            has_remaining_ms: ask.remaining.map(number::from_duration),
            has_fingerprint: ask.fingerprint,
            has_claim: from_claim(ask.claim),
            draw: ask.draw.map(Into::into),
            tally: (ask.tally.counts != Counts::default()).then(|| ask.tally.into()),
            ..Self::default()
        };
        match ask.demand.bands() {
            [band] => {
                message.wants = number::from_capacity(band.wants);
                message.priority = band.priority.level().into();
                message.subclients = number::from_subclients(band.subclients);
            }
            bands => message.bands = bands.iter().map(Into::into).collect(),
        }
        message
    }
}

impl TryFrom<&v1::UnitRequest> for LeaseRequest {
    type Error = FieldError;

    fn try_from(message: &v1::UnitRequest) -> Result<Self, FieldError> {
        let remaining = message.has_remaining_ms.map(number::to_remaining);
        let remaining = remaining.transpose();
        Ok(Self {
            sequence: message.sequence,
            has: capacity("has", message.has)?,
            remaining: remaining.map_err(|rule| FieldError::new("has_remaining_ms", rule))?,
            fingerprint: message.has_fingerprint,
            claim: to_claim(message.has_claim),
            demand: demand(message)?,
            draw: message.draw.map(Into::into),
            tally: message.tally.map(Into::into).unwrap_or_default(),
        })
    }
}

// === impl Tally ===

impl From<Tally> for v1::Tally {
    fn from(tally: Tally) -> Self {
        Self {
            since: tally.since,
            attempts: tally.counts.attempts,
            refused: tally.counts.refused,
        }
    }
}

impl From<v1::Tally> for Tally {
    fn from(message: v1::Tally) -> Self {
        Self {
            since: message.since,
            counts: Counts {
                attempts: message.attempts,
                refused: message.refused,
            },
        }
    }
}

// === impl DrawRequest ===

impl From<DrawRequest> for v1::Draw {
    fn from(draw: DrawRequest) -> Self {
        Self {
            account: draw.account,
            drawn: draw.drawn.as_micros(),
            holds: draw.holds.as_micros(),
            needs: draw.needs.as_micros(),
            first: draw.first.as_micros(),
            returns: draw.returns.as_micros(),
            owed: draw.owed.as_micros(),
            debt_max: draw.debt_max.as_micros(),
            refunds: draw.refunds.as_micros(),
            // No shorter than it was.
            refunded_for_ms: u64::try_from(draw.refunded_for.as_nanos().div_ceil(1_000_000))
                .unwrap_or(u64::MAX),
            // No longer than it was.
            spent_for_ms: u64::try_from(draw.spent_for.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<v1::Draw> for DrawRequest {
    fn from(message: v1::Draw) -> Self {
        Self {
            account: message.account,
            drawn: Tokens::from_micros(message.drawn),
            holds: Tokens::from_micros(message.holds),
            needs: Tokens::from_micros(message.needs),
            first: Tokens::from_micros(message.first),
            returns: Tokens::from_micros(message.returns),
            owed: Tokens::from_micros(message.owed),
            debt_max: Tokens::from_micros(message.debt_max),
            refunds: Tokens::from_micros(message.refunds),
            refunded_for: Duration::from_millis(message.refunded_for_ms),
            spent_for: Duration::from_millis(message.spent_for_ms),
        }
    }
}

// === impl Band ===

impl From<&Band> for v1::BandRequest {
    fn from(band: &Band) -> Self {
        Self {
            priority: band.priority.level().into(),
            wants: number::from_capacity(band.wants),
            subclients: band.subclients.get(),
        }
    }
}

impl TryFrom<&v1::BandRequest> for Band {
    type Error = FieldError;

    fn try_from(message: &v1::BandRequest) -> Result<Self, FieldError> {
        Ok(Self {
            priority: priority(message.priority)?,
            wants: capacity("wants", message.wants)?,
            subclients: subclients(message.subclients)?,
        })
    }
}

// === impl Release ===

impl TryFrom<v1::ReleaseRequest> for Release {
    type Error = FieldError;

    fn try_from(message: v1::ReleaseRequest) -> Result<Self, FieldError> {
        let run = (message.incarnation, message.term);
        client_run(&message.client_id, run)?;
        message.forwarded()
    }
}

impl v1::ReleaseRequest {
    /// The release that another node has forwarded: also for a client whose protocol does not tell
    /// its runs apart, which says no incarnation.
    ///
    /// # Errors
    /// If a field breaks another rule.
    pub fn forwarded(self) -> Result<Release, FieldError> {
        let client = ClientRun {
            id: client_id(&self.client_id)?,
            run: to_run((self.incarnation, self.term))?,
        };
        check_len("resources", self.resources.len())?;
        let resources = self.resources.iter().enumerate();
        let resources = resources
            .map(|(i, resource)| released(resource).map_err(|e| e.within("resources", i)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Release { client, resources })
    }
}

impl From<&Release> for v1::ReleaseRequest {
    fn from(release: &Release) -> Self {
        let resource = |(id, sequence): &(ResourceId, u64)| v1::ReleasedResource {
            scope: id.scope.as_ref().to_owned(),
            unit: number::from_unit(id.unit),
            sequence: *sequence,
        };
        let (incarnation, term) = from_run(release.client.run);
        Self {
            client_id: release.client.id.as_str().to_owned(),
            resources: release.resources.iter().map(resource).collect(),
            incarnation,
            term,
        }
    }
}

// === free functions ===

/// `id` as a scope.
pub(crate) fn scope_id(id: &str) -> Result<Arc<str>, IdError> {
    Ok(ResourceId::new(id, Unit::Requests)?.scope)
}

pub(crate) fn client_id(id: &str) -> Result<ClientId, FieldError> {
    ClientId::new(id).map_err(|error| FieldError::new("client_id", error))
}

/// The run of a client that says an incarnation and a term, of which one is 0.
pub(crate) fn client_run(id: &str, run: (u64, u64)) -> Result<ClientRun, FieldError> {
    let id = client_id(id)?;
    match to_run(run)? {
        Run::Only => Err(FieldError::new("incarnation", Rule::NoIncarnation)),
        run => Ok(ClientRun { id, run }),
    }
}

/// The run that an incarnation and a term say; [`Run::Only`] if both are 0.
pub(crate) fn to_run((incarnation, term): (u64, u64)) -> Result<Run, FieldError> {
    match (NonZeroU64::new(incarnation), term) {
        (Some(_), 1..) => Err(FieldError::new("term", Rule::TermOfIncarnation(term))),
        (Some(incarnation), 0) => Ok(Run::Incarnation(incarnation)),
        (None, 0) => Ok(Run::Only),
        (None, term) if term > Epoch::MAX.0 => Err(FieldError::new("term", Rule::Term(term))),
        (None, term) => Ok(Run::Term(Epoch(term))),
    }
}

/// The incarnation and the term that say `run`.
pub(crate) fn from_run(run: Run) -> (u64, u64) {
    match run {
        Run::Only => (0, 0),
        Run::Incarnation(incarnation) => (incarnation.get(), 0),
        Run::Term(term) => (0, term.0),
    }
}

pub(crate) fn check_len(list: &str, count: usize) -> Result<(), FieldError> {
    let max = SCOPES_MAX;
    match count {
        0 => Err(FieldError::new(list, Rule::Empty)),
        _ if count > max => Err(FieldError::new(list, Rule::TooMany { count, max })),
        _ => Ok(()),
    }
}

fn unit_ask(message: &v1::UnitRequest) -> Result<(Unit, LeaseRequest), FieldError> {
    let unit = number::to_unit(message.unit).map_err(|rule| FieldError::new("unit", rule))?;
    Ok((unit, message.try_into()?))
}

/// The simple form, unless there are bands.
fn demand(message: &v1::UnitRequest) -> Result<Demand, FieldError> {
    if message.bands.is_empty() {
        return Ok(Demand::one(Band {
            priority: priority(message.priority)?,
            wants: capacity("wants", message.wants)?,
            subclients: NonZeroU32::new(message.subclients).unwrap_or(NonZeroU32::MIN),
        }));
    }
    let (count, max) = (message.bands.len(), Priority::COUNT);
    if count > max {
        return Err(FieldError::new("bands", Rule::TooMany { count, max }));
    }
    let bands = message.bands.iter().enumerate();
    let bands = bands
        .map(|(i, band)| Band::try_from(band).map_err(|e| e.within("bands", i)))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some((of, i)) = repeated(bands.iter().map(|band| band.priority)) {
        return Err(FieldError::new("priority", Rule::Duplicate { of }).within("bands", i));
    }
    Demand::try_from_bands(&bands).map_err(|_| FieldError::new("bands", Rule::Empty))
}

fn from_claim(claim: Claim) -> i32 {
    match claim {
        Claim::Lease => v1::Claim::Lease,
        Claim::Several => v1::Claim::Several,
        Claim::AtLeast => v1::Claim::AtLeast,
    }
    .into()
}

/// An unknown claim of a newer client counts as the least that is certain.
fn to_claim(claim: i32) -> Claim {
    match v1::Claim::try_from(claim) {
        Ok(v1::Claim::Lease) => Claim::Lease,
        Ok(v1::Claim::Several) => Claim::Several,
        Ok(v1::Claim::AtLeast) | Err(_) => Claim::AtLeast,
    }
}

fn capacity(field: &str, value: f64) -> Result<Capacity, FieldError> {
    number::to_capacity(value).map_err(|error| FieldError::new(field, error))
}

pub(crate) fn priority(level: u32) -> Result<Priority, FieldError> {
    let priority = u8::try_from(level).ok().and_then(Priority::new);
    priority.ok_or_else(|| FieldError::new("priority", Rule::Priority(level)))
}

pub(crate) fn subclients(count: u32) -> Result<NonZeroU32, FieldError> {
    let subclients = NonZeroU32::new(count);
    subclients.ok_or_else(|| FieldError::new("subclients", Rule::NoSubclients))
}

fn released(message: &v1::ReleasedResource) -> Result<(ResourceId, u64), FieldError> {
    let unit = number::to_unit(message.unit).map_err(|rule| FieldError::new("unit", rule))?;
    let resource = ResourceId::new(&message.scope, unit);
    let resource = resource.map_err(|error| FieldError::new("scope", error))?;
    Ok((resource, message.sequence))
}

/// The indices of the first two entries that are the same. Sorts rather than hashes, because a
/// hash set would make the wasm filter import a source of randomness.
fn repeated<T: Ord>(entries: impl Iterator<Item = T>) -> Option<(usize, usize)> {
    let mut sorted: Vec<_> = entries.enumerate().map(|(i, entry)| (entry, i)).collect();
    sorted.sort_unstable();
    let mut last: Option<(T, usize)> = None;
    for (entry, index) in sorted {
        match last {
            Some((same, of)) if same == entry => return Some((of, index)),
            _ => last = Some((entry, index)),
        }
    }
    None
}

#[cfg(test)]
mod tests;
