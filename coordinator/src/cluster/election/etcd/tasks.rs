//! What goes on beside a session: the lease is kept, and the others are watched.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::WatchOptions;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::CALL_LIMIT;
use super::keys::ElectionKeys;
use crate::clock::boot_time;
use crate::cluster::election::{ElectionMetrics, TermDeadline};
use crate::cluster::etcd::{EtcdError, EtcdLink};

/// The least time by which a term ends before the lease that it depends on.
const MARGIN_MIN: Duration = Duration::from_millis(200);

/// The times of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAliveTimes {
    lease: Duration,
    /// How often the lease is confirmed, and the others are looked at even if nothing is heard.
    pub(super) beat: Duration,
    /// How long an endpoint has to confirm it before the next is asked.
    patience: Duration,
}

// === impl KeepAliveTimes ===

impl KeepAliveTimes {
    /// Those of a lease that lasts `lease`.
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            beat: lease / 5,
            patience: (lease / 4).min(CALL_LIMIT),
        }
    }

    /// When a term ends that was confirmed by what was sent at `sent`: before the lease, which etcd
    /// counts from when that arrived. The margin is for clocks that do not run equally fast.
    pub(super) fn end(&self, sent: Duration) -> Duration {
        let margin = (self.lease / 10).max(MARGIN_MIN);
        sent.saturating_add(self.lease).saturating_sub(margin)
    }
}

// === free functions ===

/// Confirms `lease` again and again, and puts `ends` off each time; returns when etcd does not know
/// the lease any more.
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
        let kept = link.call(pulse.patience, async |mut client| {
            client.lease_keep_alive(lease).await
        });
        match kept.await {
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
                metrics.count_error();
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
            // Whatever happened before the watch began.
            changed.notify_one();
            loop {
                tokio::select! {
                    message = watching.message() => match message {
                        Ok(Some(message)) if !message.canceled() => changed.notify_one(),
                        _ => break,
                    },
                    // The endpoint that it watches at did not answer somebody else.
                    _ = turns.changed() => break,
                }
            }
        }
        sleep(pulse.beat).await;
    }
}

/// Whether etcd answered, and does not know the lease.
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
            let late = pulse.beat + pulse.patience + pulse.beat / 4 + pulse.patience;
            assert!(late < lease - early, "{lease:?}");
        }
    }
}
