//! Conditions of a process that the operator is told of once: safe mode, and clusters of coordinators
//! that there are not.
//!
//! The sync leader logs them. The conditions that were logged are in shared data, so that the next leader
//! does not log them again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::client::{CallHistory, SafeMode, SafeModeReport};
use tollgate_core::message::Release;
use tollgate_core::units::Instant;

use super::{LeaseSync, Schedule, Upstream};
use crate::host::{Host, HostError, Level};
use crate::process::Process;
use crate::shared_table::TableError;
use crate::shared_table::codec::MissingClusters;

/// Time between two looks for a cluster that there is not.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of a failure's text that are kept for the log.
const FAILURE_LEN_MAX: usize = 300;

/// Conditions of a process, as one worker knows them.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    calls: CallHistory,
    /// The cluster that the last call failed at, and why.
    last_failure: Option<(Upstream, String)>,
    /// The record in shared data as it was last seen; none before the worker holds the leader lock.
    known: Option<SafeMode>,
    /// The clusters that there are not, and when they were last looked for.
    missing: BTreeSet<Upstream>,
    looked_at: Option<Instant>,
    /// True if `missing` has changed since it was told.
    untold: bool,
}

// === impl Conditions ===

impl Conditions {
    /// Returns the number of clusters that there are not.
    pub(super) fn missing_count(&self) -> u64 {
        u64::try_from(self.missing.len()).unwrap_or(u64::MAX)
    }

    /// Notes that a call to `to` was answered.
    pub(super) fn note_answer(&mut self, to: Upstream) {
        self.calls.handle_answer(to.index());
    }

    /// Notes why a call to `to` failed.
    pub(super) fn note_failure(&mut self, now: Instant, to: Upstream, cause: &str) {
        self.calls.handle_failure(now, to.index());
        self.keep_failure(to, cause);
    }

    /// Notes why a coordinator at `to` could not reach the master of a scope.
    pub(super) fn note_out_of_reach(&mut self, now: Instant, to: Upstream, cause: &str) {
        self.calls.handle_out_of_reach(now);
        self.keep_failure(to, cause);
    }

    fn keep_failure(&mut self, to: Upstream, cause: &str) {
        let end = cause.floor_char_boundary(FAILURE_LEN_MAX);
        let cause = cause.get(..end).unwrap_or_default();
        self.last_failure = Some((to, cause.to_owned()));
    }
}

// === impl LeaseSync ===

impl LeaseSync {
    /// Returns the cause for which no call to `to` was made; remembers a cluster that there is not.
    pub(super) fn cause_of<H: Host>(
        &mut self,
        process: &Process<H>,
        now: Instant,
        to: Upstream,
        error: &HostError,
    ) -> String {
        if !self.lacks(process, to) {
            return format!("no call was made: no healthy host in the cluster? ({error})");
        }
        self.conditions.untold |= self.conditions.missing.insert(to);
        self.conditions.looked_at = Some(now);
        "there is no cluster of that name".to_owned()
    }

    /// Logs the conditions that have changed, as the sync leader.
    pub(super) fn tell_conditions<H: Host>(
        &mut self,
        process: &Process<H>,
        now: Instant,
    ) -> Result<(), TableError> {
        if self.conditions.known.is_none() {
            self.recall_conditions(process)?;
        }
        self.look_for_clusters(process, now);
        if self.conditions.untold {
            self.tell_clusters(process)?;
            self.conditions.untold = false;
        }
        self.tell_safe_mode(process, now)
    }

    /// Reads the conditions that were logged before.
    fn recall_conditions<H: Host>(&mut self, process: &Process<H>) -> Result<(), TableError> {
        let slots = process.table.slots()?;
        let read = |bytes: &[u8]| (SafeMode::decode(bytes), None);
        let known = slots.update_record(&process.host, "safe-mode", read)?;
        let read = |bytes: &[u8]| (MissingClusters::decode(bytes), None);
        let logged = slots.update_record(&process.host, "missing-clusters", read)?;
        let upstreams = self.upstreams.all();
        let missing = upstreams.filter(|to| logged.names.contains(self.upstreams.name(*to)));
        self.conditions.missing.extend(missing);
        self.conditions.untold |= !logged.names.is_empty();
        self.conditions.known = Some(known);
        Ok(())
    }

    /// Looks whether clusters that were missing are there now.
    fn look_for_clusters<H: Host>(&mut self, process: &Process<H>, now: Instant) {
        let fresh = |at| now.saturating_since(at) < LOOK_INTERVAL;
        if self.conditions.missing.is_empty() || self.conditions.looked_at.is_some_and(fresh) {
            return;
        }
        self.conditions.looked_at = Some(now);
        let mut missing = core::mem::take(&mut self.conditions.missing);
        let before = missing.len();
        missing.retain(|to| self.lacks(process, *to));
        self.conditions.untold |= missing.len() < before;
        self.conditions.missing = missing;
    }

    /// Returns whether there is no cluster for `to`; false where the host cannot tell.
    fn lacks<H: Host>(&self, process: &Process<H>, to: Upstream) -> bool {
        let Ok(slots) = process.table.slots() else {
            return false;
        };
        let nothing = Release {
            client: slots.client().clone(),
            resources: Vec::new(),
        };
        let timeout = process.config.call_timeout;
        process
            .host
            .lacks_cluster(self.upstreams.name(to), &nothing, timeout)
    }

    fn tell_clusters<H: Host>(&self, process: &Process<H>) -> Result<(), TableError> {
        let slots = process.table.slots()?;
        let named = self.upstreams.all();
        let named: BTreeMap<&str, Upstream> =
            named.map(|to| (self.upstreams.name(to), to)).collect();
        let missing = self.conditions.missing.iter();
        let missing = MissingClusters {
            names: missing
                .map(|to| self.upstreams.name(*to).to_owned())
                .collect(),
        };
        let logged = slots.update_record(&process.host, "missing-clusters", |bytes| {
            let logged = MissingClusters::decode(bytes);
            let changed = (logged != missing).then(|| missing.encode());
            (logged, changed)
        })?;
        for name in missing.names.difference(&logged.names) {
            let field = named.get(name.as_str()).copied().unwrap_or_default();
            let line = format!(
                "tollgate: cluster missing: there is no cluster {name:?}, which {field} names; no lease \
                 comes from there until there is one"
            );
            process.host.log(Level::Error, &line);
        }
        for name in logged.names.difference(&missing.names) {
            if let Some(field) = named.get(name.as_str()) {
                let line = format!(
                    "tollgate: cluster found: there is a cluster {name:?} now, which {field} names"
                );
                process.host.log(Level::Warn, &line);
            }
        }
        Ok(())
    }

    fn tell_safe_mode<H: Host>(
        &mut self,
        process: &Process<H>,
        now: Instant,
    ) -> Result<(), TableError> {
        let schedule = self.schedule.as_ref();
        let without_lease = schedule.map_or(0, Schedule::without_lease);
        let calls = &mut self.conditions.calls;
        let known = self.conditions.known.unwrap_or_default();
        if known.next(now, calls, without_lease).0 == known {
            return Ok(());
        }
        let slots = process.table.slots()?;
        let (next, report) = slots.update_record(&process.host, "safe-mode", |bytes| {
            let (next, report) = SafeMode::decode(bytes).next(now, calls, without_lease);
            ((next, report), Some(next.encode().to_vec()))
        })?;
        self.conditions.known = Some(next);
        if let Some(report) = report {
            let line = self.safe_mode_line(report, without_lease);
            process.host.log(Level::Warn, &line);
        }
        Ok(())
    }

    fn safe_mode_line(&self, report: SafeModeReport, without_lease: u64) -> String {
        let failure = self.conditions.last_failure.as_ref();
        let (to, cause) = failure.map_or((Upstream::ANY, ""), |(to, cause)| (*to, cause.as_str()));
        let name = self.upstreams.name(to);
        match report {
            SafeModeReport::Entered {
                failing_for,
                unreported,
            } => {
                let before = match unreported {
                    0 => String::new(),
                    times => format!(" unreported_before={times}"),
                };
                format!(
                    "tollgate: safe mode on: calls to the coordinator fail and scopes have no \
                     lease: coordinator={name:?} failing_for={:.1}s scopes={without_lease} \
                     last_failure={cause:?}{before}",
                    failing_for.as_secs_f64()
                )
            }
            SafeModeReport::Left { after } => format!(
                "tollgate: safe mode off: the coordinator answers again: coordinator={name:?} \
                 after={:.1}s scopes_without_lease={without_lease} last_failure={cause:?}",
                after.as_secs_f64()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_any_length_is_kept_in_short() {
        let mut conditions = Conditions::default();
        conditions.note_failure(Instant::ZERO, Upstream::ANY, &"\u{fc}".repeat(1000));
        let known = format!("{conditions:?}");
        assert!(known.len() < 900, "{known}");
    }
}
