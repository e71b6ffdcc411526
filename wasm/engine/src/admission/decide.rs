//! Decision on a request from the state of all its buckets.

use tollgate_core::client::AwaitAction;
use tollgate_core::lease::Unit;

use super::draw::DrawResult;
use super::request::attempts;
use super::{Admission, Request, Stage, Target, entry};
use crate::config::RuleId;
use crate::decision::{Decision, Shortfall};
use crate::host::Host;
use crate::process::Process;
use crate::rules::Rules;
use crate::shared_table::TableError;
use crate::wait_queues::WaitQueues;

// === impl Admission ===

impl Admission {
    /// Decides one request from the state of all its buckets: admit, hold, queue or refuse. Every
    /// bucket is charged or none. Scopes without a slot of their own become their rule's overflow.
    #[cold]
    pub(crate) fn decide<H: Host>(
        &mut self,
        process: &mut Process<H>,
        queues: &WaitQueues,
        request: &mut Request,
        stage: Stage,
    ) -> Result<Decision, TableError> {
        let is_full = queues.pending.len() >= request.root.max_pending;
        request.restart(match stage {
            Stage::New if is_full => Stage::Unheld,
            stage => stage,
        });
        let mut index: usize = 0;
        while let Some(target) = request.targets().get(index) {
            if !self.is_cached(*target, request.cost_at(index)) {
                self.prepare(process, queues, request, index)?;
            }
            index = index.saturating_add(1);
        }
        // Permits last: what is drawn of these and not used keeps others from going on.
        if request.needs_permits && request.findings.admits() {
            self.draw_permits(process, queues, request)?;
        }
        let decision = request.findings.decision(&mut process.rules);
        match decision {
            Decision::Admit => {
                self.spend(request);
                if request.needs_permits {
                    self.take_permits(request);
                }
                if !request.is_prepaid() {
                    process.stats.allowed.add_one();
                }
            }
            Decision::Deny(_) if request.has_final_cost => {
                self.count_final_cost(&process.rules, request);
            }
            _ => {}
        }
        Ok(decision)
    }

    /// Draws all that a request needs of one of its targets but a permit, and adds the canonical
    /// scope of the target.
    #[cold]
    fn prepare<H: Host>(
        &mut self,
        process: &mut Process<H>,
        queues: &WaitQueues,
        request: &mut Request,
        index: usize,
    ) -> Result<(), TableError> {
        let is_own = index < request.own_targets().len();
        let result = match queues.denial_before(request, index) {
            Some(denial) => DrawResult::Denied(denial),
            None => self.draw(process, request, index)?,
        };
        let Some(target) = request.targets().get(index).copied() else {
            return Ok(());
        };
        if self.note(&mut process.rules, request, target, result) {
            self.count_refused(target, request.attempts_at(index));
        }
        // The request's own body may be what the scope owes. One that does not go on takes no bytes from others.
        if request.prepaid_at(target).is_none() && !request.findings.is_denied() {
            self.draw_bytes(process, request, target)?;
        }
        // As of now: each look at the shared table may have brought other terms.
        let Some(meters) = self.meters(target) else {
            return Ok(());
        };
        request.counts_until_end |= meters.counts_streams();
        request.needs_permits |= meters.permits.is_some();
        let canonical = meters.canonical.clone().filter(|_| is_own);
        request.has_canonical |= canonical.is_some();
        // A request that the scope itself refuses does not get as far as the canonical one.
        if let Some(id) = canonical
            && !request.findings.is_denied()
        {
            let canonical = Target {
                rule: target.rule,
                ..self.canonical_target(process, &id)?
            };
            let place = request.targets().len();
            if request.push_canonical(canonical) && !request.counted_at_canonical {
                self.count_attempts_of(canonical, request.attempts_at(place));
            }
        }
        Ok(())
    }

    /// Adds the result of one bucket to the findings of a request. Returns whether it is refused for that.
    pub(super) fn note(
        &self,
        rules: &mut Rules,
        request: &mut Request,
        target: Target,
        result: DrawResult,
    ) -> bool {
        let denial = match result {
            DrawResult::Ready => return false,
            DrawResult::Pending => {
                request.findings.pending = true;
                return false;
            }
            DrawResult::Denied(denial) => denial,
        };
        let shortfall = Shortfall { target, denial };
        let refusal = shortfall.refusal();
        if self.is_shadowed(rules, RuleId(target.rule), request.stream) {
            request.shadow(rules, refusal);
            false
        } else if rules.shape(target.rule).is_some() && !denial.never {
            request.findings.add_shortfall(shortfall);
            false
        } else {
            rules.count_refused(refusal);
            request.findings.add_refusal(refusal);
            true
        }
    }

    /// Counts attempts at one bucket that were refused, for the coordinator to know.
    fn count_refused(&mut self, target: Target, attempts: u32) {
        if let Some(entry) = entry(&mut self.tables, target) {
            entry.refused = entry.refused.saturating_add(attempts);
            self.enqueue(target);
        }
    }

    /// Refuses a request that may not wait; it counts from now on.
    pub(crate) fn turn_away(
        &mut self,
        rules: &mut Rules,
        request: &Request,
        shortfall: Shortfall,
    ) -> Decision {
        let refusal = shortfall.refusal();
        rules.count_refused(refusal);
        if request.has_final_cost {
            self.count_final_cost(rules, request);
        }
        if shortfall.denial.unit == Unit::Requests {
            let cost = request.cost_of(shortfall.target);
            self.count_refused(shortfall.target, attempts(cost));
        }
        if let Some(meters) = self.meters(shortfall.target) {
            meters.refuse(shortfall.denial.unit);
        }
        Decision::Deny(refusal)
    }
}

// === impl Request ===

impl Request {
    /// Returns whether a denied request counts as refused now, and not only after it has waited in vain.
    pub(super) fn counts_at_once(&self, rules: &Rules, target: Target) -> bool {
        self.stage != Stage::Turn && rules.shape(target.rule).is_none()
    }

    /// Returns the action on the request if the coordinator has to be asked for what it needs of `target`.
    pub(super) fn action(&self, rules: &Rules, target: Target) -> AwaitAction {
        match self.stage {
            Stage::New if rules.is_shadow(target.rule) => AwaitAction::Admit,
            Stage::New => AwaitAction::Hold,
            _ => AwaitAction::Refuse,
        }
    }
}
