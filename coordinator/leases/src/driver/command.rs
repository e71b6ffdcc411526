//! Commands to a driver.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_core::fleet::{QuotaChangeRequest, is_slow};
use tollgate_core::lease::{Answer, ClientId, ResourceId};
use tollgate_core::lease_server::{DrainError, LeaseServer};
use tollgate_core::units::Instant;
use tollgate_proto::request::{Refresh, Release};
use tollgate_proto::response::ScopeAnswer;

use super::parent_batch::{ParentBatch, ParentReply};
use super::{Driver, LeaseError, QuotaFault, ScopeQuotas, ScopeQuotasPage};
use crate::derived::{DerivedAnswers, DerivedCall};

/// Command to a driver, with the sender of its result.
///
/// A call that only asks is not carried out once its caller has gone; one that tells always is, because
/// such a caller has nothing more to ask.
#[derive(Debug)]
pub(super) enum Command {
    /// Answers a client.
    Refresh(Refresh, Reply<Vec<ScopeAnswer>>),
    /// Answers a client whose requests are derived from the lease table.
    RefreshDerived(DerivedCall, Reply<DerivedAnswers>),
    /// Takes leases back.
    Release(Release, Reply<()>),
    /// Gives a client nothing for a time, or lets it serve again if that is zero.
    Drain(ClientId, Duration, Reply<Result<(), DrainError>>),
    /// Tells the usage of a scope's quotas.
    ScopeQuotas(Arc<str>, Reply<Option<ScopeQuotas>>),
    /// Tells the usage of the quotas of so many scopes after one.
    ScopeQuotasPage(String, usize, Reply<ScopeQuotasPage>),
    /// Changes what is used of a quota.
    ChangeQuota(
        ResourceId,
        QuotaChangeRequest,
        Reply<Option<Result<(), QuotaFault>>>,
    ),
    /// Looks at the lease table.
    View(View),
    /// Waits for the next batch for the parent.
    AwaitBatch(Reply<ParentBatch>),
    /// Applies the parent's answers.
    ApplyParent(ParentReply, Reply<()>),
    /// Handles nudges of the parent.
    Nudge(Vec<ResourceId>, Reply<()>),
    /// Ends the driver.
    HandOver(Reply<FinalState>),
}

/// Sender of a command's result.
pub(super) type Reply<T> = oneshot::Sender<T>;

/// Look at the lease table, which sends its result itself.
pub(super) struct View(Box<Look>);

type Look = dyn FnOnce(&LeaseServer, Instant) + Send;

/// The lease table of a driver that ended, and the time at which it did.
pub(super) type FinalState = Box<(LeaseServer, Instant)>;

// === impl Driver ===

impl Driver {
    /// Carries `command` out; a hand-over is the loop's.
    pub(super) fn handle(&mut self, now: Instant, command: Command) {
        match command {
            Command::Refresh(refresh, reply) if !reply.is_closed() => {
                let mut answers = self.refresh(now, &refresh);
                self.reply_when_stored(now, move |is_stored| {
                    if !is_stored {
                        withhold_draws(&mut answers);
                    }
                    let _ = reply.send(answers);
                });
            }
            Command::RefreshDerived(call, reply) if !reply.is_closed() => {
                let _ = reply.send(self.refresh_derived(now, call));
            }
            Command::Release(release, reply) => {
                self.release(&release);
                let _ = reply.send(());
            }
            Command::Drain(client, time, reply) => {
                let until = now.saturating_add(time);
                let _ = reply.send(self.server.handle_drain(now, &client, until));
            }
            Command::ScopeQuotas(scope, reply) => {
                let _ = reply.send(self.scope_quotas(now, &scope));
            }
            Command::ScopeQuotasPage(after, max, reply) => {
                let _ = reply.send(self.quota_page(now, &after, max));
            }
            Command::ChangeQuota(resource, request, reply) => {
                let changed = self.change_quota(now, &resource, &request);
                self.reply_when_stored(now, move |is_stored| {
                    let changed = changed.map(|changed| {
                        changed.and(if is_stored {
                            Ok(())
                        } else {
                            Err(QuotaFault::NotStored)
                        })
                    });
                    let _ = reply.send(changed);
                });
            }
            Command::View(view) => (view.0)(&self.server, now),
            Command::AwaitBatch(reply) => self.await_batch(reply),
            Command::ApplyParent(answers, reply) => {
                self.handle_parent_reply(now, answers);
                let _ = reply.send(());
            }
            Command::Nudge(resources, reply) => {
                for resource in &resources {
                    self.server.handle_parent_nudge(now, resource);
                }
                let _ = reply.send(());
            }
            Command::Refresh(..) | Command::RefreshDerived(..) | Command::HandOver(_) => {}
        }
    }
}

// === impl View ===

impl View {
    /// A look whose result goes to `reply`; nothing is done for a caller that has gone.
    pub(super) fn new<T: Send + 'static>(
        look: impl FnOnce(&LeaseServer, Instant) -> T + Send + 'static,
        reply: Reply<T>,
    ) -> Self {
        Self(Box::new(move |server, now| {
            if !reply.is_closed() {
                let _ = reply.send(look(server, now));
            }
        }))
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

// === free functions ===

/// Takes out the answers that tell of tokens of a bucket that is stored: another master may not know of them.
fn withhold_draws(answers: &mut [ScopeAnswer]) {
    for answer in answers {
        let mut units = answer.outcome.iter().flatten();
        if units.any(|unit| tells_of_stored(&unit.answer)) {
            answer.outcome = Err(LeaseError::NotStored.into());
        }
    }
}

fn tells_of_stored(answer: &Answer) -> bool {
    if answer.draw.is_some_and(|draw| draw.quota.is_some()) {
        return true;
    }
    let burst = answer.burst.filter(|_| answer.draw.is_some());
    burst.is_some_and(|burst| is_slow(answer.capacity.as_rate(), burst))
}
