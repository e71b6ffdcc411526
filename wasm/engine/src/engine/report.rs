//! Remarks on a request that goes on: the refusal of a rule in shadow mode, and how its buckets stand.
//!
//! They stand as the worker's last draw found them, less what it has spent since, for to look again
//! would cost a read of shared data per request.

use super::{Engine, Request, RuleId, Target};
use crate::effect::Report;
use crate::host::Host;
use crate::refusal::LimitStatus;

impl<H: Host> Engine<H> {
    /// Remarks on the request at hand, which goes on.
    #[cold]
    pub(super) fn take_report(&mut self, request: &Request) -> Report {
        let mut limits = Vec::new();
        if self.config.reports_limits {
            let known = |target: &Target| Some((RuleId(target.table), self.limit_status(*target)?));
            limits.extend(request.as_slice().iter().filter_map(known));
        }
        Report {
            shadowed: self.shadow.take(),
            limits,
        }
    }

    fn limit_status(&self, target: Target) -> Option<LimitStatus> {
        let table = self.tables.get(usize::from(target.table))?;
        let entry = table.scopes.get(target.index)?;
        let drawn = entry.limit_status.as_deref()?;
        Some(LimitStatus {
            left: drawn.left.saturating_add(entry.cache.left()),
            ..*drawn
        })
    }
}
