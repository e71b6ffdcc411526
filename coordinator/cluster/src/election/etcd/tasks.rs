//! Tasks beside a session: they keep its lease alive, and watch the peers.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::WatchOptions;
use tokio::sync::Notify;
use tokio::time::sleep;
use tollgate_net::clock::boot_time;

use super::CALL_LIMIT;
use super::keys::ElectionKeys;
use crate::election::{ElectionMetrics, TermDeadline};
use crate::etcd::{EtcdError, EtcdLink};

/// Least time between the deadline of a term and the end of its lease.
const MARGIN_MIN: Duration = Duration::from_millis(200);

/// Timing of an etcd lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAliveTimes {
    lease: Duration,
    /// Interval of keep-alives, and of looks without a change.
    pub(super) beat: Duration,
    /// Time for an endpoint to confirm the lease before the next is asked.
    timeout: Duration,
}

// === impl KeepAliveTimes ===

impl KeepAliveTimes {
    /// The timing of a lease that lasts `lease`.
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            beat: lease / 5,
            timeout: (lease / 4).min(CALL_LIMIT),
        }
    }

    /// The deadline of a term that is confirmed by a keep-alive sent at `sent`: before the end of
    /// the lease, which etcd counts from the arrival. The margin is for clocks of unequal speed.
    pub(super) fn end(&self, sent: Duration) -> Duration {
        let margin = (self.lease / 10).max(MARGIN_MIN);
        sent.saturating_add(self.lease).saturating_sub(margin)
    }
}

// === free functions ===

/// Keeps `lease` alive, and extends `deadline` each time; returns when etcd does not know the lease
/// any more.
pub(super) async fn keep_alive(
    link: Arc<EtcdLink>,
    lease: i64,
    pulse: KeepAliveTimes,
    deadline: TermDeadline,
    metrics: ElectionMetrics,
) {
    let mut holds = true;
    loop {
        let sent = boot_time();
        let renewed = link.call(pulse.timeout, async |mut client| {
            client.lease_keep_alive(lease).await
        });
        match renewed.await {
            Ok(_) => {
                deadline.extend(pulse.end(sent));
                if !holds {
                    tracing::info!("election: etcd confirms this node's terms again");
                }
                holds = true;
                sleep(pulse.beat).await;
            }
            Err(error) if is_gone(&error) => {
                tracing::warn!("election: etcd ended this node's lease");
                return;
            }
            Err(error) => {
                metrics.errors.inc();
                tracing::warn!(%error, left = ?deadline.left(), "election: etcd does not confirm this node's lease");
                if holds && deadline.left().is_zero() {
                    holds = false;
                    tracing::warn!("election: terms ended, so this node grants no leases");
                }
                sleep(pulse.beat / 4).await;
            }
        }
    }
}

/// Notifies `changed` of every change of masters and members, for as long as it is polled.
pub(super) async fn watch_others(
    link: Arc<EtcdLink>,
    keys: ElectionKeys,
    pulse: KeepAliveTimes,
    changed: Arc<Notify>,
) {
    let mut turns = link.turns();
    loop {
        turns.mark_unchanged();
        let (start, end) = keys.masters_and_members();
        let options = WatchOptions::new().with_range(end);
        let watching = link.call(CALL_LIMIT, async |mut client| {
            client.watch(start, Some(options)).await
        });
        if let Ok(mut watching) = watching.await {
            // Covers changes before the watch began.
            changed.notify_one();
            loop {
                tokio::select! {
                    message = watching.message() => match message {
                        Ok(Some(message)) if !message.canceled() => changed.notify_one(),
                        _ => break,
                    },
                    // Another call failed at the endpoint of this watch.
                    _ = turns.changed() => break,
                }
            }
        }
        sleep(pulse.beat).await;
    }
}

/// Whether etcd answered that it does not know the lease.
fn is_gone(error: &EtcdError) -> bool {
    use etcd_client::Error;
    match error {
        EtcdError::Call(Error::LeaseKeepAliveError(_)) => true,
        EtcdError::Call(Error::GRpcStatus(status)) => status.code() == tonic::Code::NotFound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_before_its_lease() {
        let sent = Duration::from_secs(1000);
        for seconds in [1, 2, 3, 10, 60] {
            let lease = Duration::from_secs(seconds);
            let pulse = KeepAliveTimes::new(lease);
            let early = sent + lease - pulse.end(sent);
            assert!(early >= MARGIN_MIN && early >= lease / 10, "{lease:?}");
            assert!(early < lease / 2, "{lease:?}");
            // One endpoint may hang, and another still confirms the lease in time.
            let late = pulse.beat + pulse.timeout + pulse.beat / 4 + pulse.timeout;
            assert!(late < lease - early, "{lease:?}");
        }
    }
}
