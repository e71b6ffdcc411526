//! Requests that fall due at a fixed rate, whatever becomes of earlier ones.
//!
//! Latency counts from when a request fell due and not from when it was sent, so one that had to wait for
//! a free sender counts its wait: a closed loop omits just the requests that a slow server delays. The due
//! times come from a thread of their own, since tokio's timers are no finer than a millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Requests of one load, which its senders take in turn.
#[derive(Debug)]
pub struct OpenLoop {
    schedule: Schedule,
    due: Semaphore,
    next: AtomicUsize,
}

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub struct DueRequest {
    /// Its place in the load, from 0.
    pub index: usize,
    at: Instant,
    is_measured: bool,
}

/// When each request falls due.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    /// Requests per second.
    rate: u32,
    /// Requests at the beginning that are not measured.
    warm_up: usize,
    count: usize,
}

// === impl OpenLoop ===

impl OpenLoop {
    /// Starts a load of `rate` requests per second, from 1, for `senders` senders. The first ones, during
    /// `warm_up`, are not measured; those of the time `measured` after it are.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        rate: u32,
        warm_up: Duration,
        measured: Duration,
        senders: usize,
    ) -> Result<Arc<Self>> {
        let within = |time: Duration| (f64::from(rate) * time.as_secs_f64()) as usize;
        let schedule = Schedule {
            start: Instant::now(),
            rate: rate.max(1),
            warm_up: within(warm_up),
            count: within(warm_up + measured),
        };
        let load = Arc::new(Self {
            schedule,
            due: Semaphore::new(0),
            next: AtomicUsize::new(0),
        });
        let pacer = Arc::clone(&load);
        thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || pacer.pace(senders))
            .context("starting the pacer")?;
        Ok(load)
    }

    /// Waits for the next request to be sent; `None` when the load is over.
    pub async fn next(&self) -> Option<DueRequest> {
        self.due.acquire().await.ok()?.forget();
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.schedule.count).then(|| self.schedule.request(index))
    }

    /// Makes each request due at its time, then lets each sender find out that there are no more.
    fn pace(&self, senders: usize) {
        for index in 0..self.schedule.count {
            let at = self.schedule.request(index).at;
            thread::sleep(at.saturating_duration_since(Instant::now()));
            self.due.add_permits(1);
        }
        self.due.add_permits(senders);
    }
}

// === impl Schedule ===

impl Schedule {
    fn request(&self, index: usize) -> DueRequest {
        let after = Duration::from_secs_f64(index as f64 / f64::from(self.rate));
        DueRequest {
            index,
            at: self.start + after,
            is_measured: index >= self.warm_up,
        }
    }
}

// === impl DueRequest ===

impl DueRequest {
    /// Time since it fell due, in microseconds; `None` for a request of the warm-up.
    pub fn latency_us(&self) -> Option<u32> {
        let micros = self.at.elapsed().as_micros();
        self.is_measured
            .then(|| u32::try_from(micros).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_fall_due_whether_or_not_earlier_ones_are_answered() {
        let ms = Duration::from_millis;
        let load = OpenLoop::start(1000, ms(10), ms(20), 1).unwrap();
        let mut measured = Vec::new();
        while let Some(request) = load.next().await {
            // A server that takes thirty times as long as there is between two requests.
            if request.index == 0 {
                tokio::time::sleep(ms(30)).await;
            }
            measured.extend(request.latency_us());
        }
        // No request is left out. That of 10 ms was sent after 30 ms at the soonest, and says so.
        assert_eq!(measured.len(), 20);
        assert!(measured[0] >= 20_000, "{measured:?}");
    }
}
