//! Load of many visitors, at a fixed rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::filter::TENANT_HEADER;
use tollgate_tests::open_loop::{DueRequest, OpenLoop};

/// Connections to each Envoy.
const CONNECTIONS: usize = 64;
/// One in so many requests is of a known tenant.
const KNOWN_EACH: usize = 20;
const KNOWN_TENANTS: usize = 100;
/// Length of a part of the course, in seconds.
pub(crate) const PART_SECONDS: usize = 10;

/// Requests of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests per second.
    pub(crate) rate: u32,
    /// Tenants that come at random.
    pub(crate) tenants: u64,
    pub(crate) time: Duration,
}

/// Answers to requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) refused: usize,
    /// Latencies of those that passed, in microseconds.
    pub(crate) latencies_us: Vec<u32>,
}

/// Answers to one load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visits {
    pub(crate) visitors: Answers,
    pub(crate) known: Answers,
    /// Requests that passed and that were refused, in each [`PART_SECONDS`].
    pub(crate) course: Vec<(usize, usize)>,
}

// === impl Answers ===

impl Answers {
    /// Latency that a part of the requests that passed does not exceed, in milliseconds.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let place = (part * sorted.len().saturating_sub(1) as f64) as usize;
        f64::from(sorted.get(place).copied().unwrap_or(0)) / 1000.0
    }

    fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.latencies_us.extend(other.latencies_us);
    }
}

// === impl Visits ===

impl Visits {
    fn count(&mut self, due: DueRequest, load: Load, status: u16) -> Result<()> {
        let part = due.index / (PART_SECONDS * load.rate as usize);
        if self.course.len() <= part {
            self.course.resize(part + 1, (0, 0));
        }
        let of = if is_known(due.index) {
            &mut self.known
        } else {
            &mut self.visitors
        };
        match status {
            200 => {
                self.course[part].0 += 1;
                of.latencies_us.extend(due.latency_us());
            }
            429 => {
                self.course[part].1 += 1;
                of.refused += 1;
            }
            other => bail!("a request was answered {other}"),
        }
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.visitors.add(other.visitors);
        self.known.add(other.known);
        if self.course.len() < other.course.len() {
            self.course.resize(other.course.len(), (0, 0));
        }
        for (part, (passed, refused)) in self.course.iter_mut().zip(other.course) {
            part.0 += passed;
            part.1 += refused;
        }
    }
}

// === free functions ===

/// Sends a load to several addresses.
///
/// # Errors
/// When an answer is neither 200 nor 429, or a connection breaks.
pub(crate) async fn send(to: &[SocketAddr], load: Load) -> Result<Visits> {
    let mut connections = Vec::new();
    for to in to.iter().cycle().take(CONNECTIONS * to.len()) {
        connections.push(Connection::open(*to).await?);
    }
    let requests = OpenLoop::start(load.rate, Duration::ZERO, load.time, connections.len())?;
    let mut senders = JoinSet::new();
    for connection in connections {
        senders.spawn(send_on(connection, Arc::clone(&requests), load));
    }
    let mut visits = Visits::default();
    while let Some(done) = senders.join_next().await {
        visits.add(done??);
    }
    Ok(visits)
}

async fn send_on(
    mut connection: Connection,
    requests: Arc<OpenLoop>,
    load: Load,
) -> Result<Visits> {
    let mut visits = Visits::default();
    while let Some(due) = requests.next().await {
        let tenant = tenant(due.index, load.tenants);
        let request = get("/", &[(TENANT_HEADER, &tenant)]);
        let status = connection.status_of(&request).await?;
        visits.count(due, load, status)?;
    }
    Ok(visits)
}

fn is_known(index: usize) -> bool {
    index.is_multiple_of(KNOWN_EACH)
}

/// The tenant of a request: the same in each run.
fn tenant(index: usize, tenants: u64) -> String {
    if is_known(index) {
        format!("known-{}", index / KNOWN_EACH % KNOWN_TENANTS)
    } else {
        format!("visitor-{}", spread(index as u64) % tenants.max(1))
    }
}

/// Spreads neighbouring numbers over all bits: the finaliser of SplitMix64.
fn spread(number: u64) -> u64 {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn visitors_are_spread_and_known_tenants_come_in_turn() {
        let tenants: BTreeSet<_> = (0..20_000).map(|index| tenant(index, 200_000)).collect();
        // Of 19 000 draws from 200 000 some 900 are repeated.
        assert!(tenants.len() > 17_500, "{}", tenants.len());
        let known = tenants.iter().filter(|name| name.starts_with("known-"));
        assert_eq!(known.count(), KNOWN_TENANTS);
    }

    #[test]
    fn a_quantile_is_one_of_the_latencies() {
        let answers = Answers {
            refused: 0,
            latencies_us: vec![3000, 1000, 2000],
        };
        assert_eq!(answers.quantile_ms(0.5), 2.0);
        assert_eq!(answers.quantile_ms(0.99), 2.0);
        assert_eq!(Answers::default().quantile_ms(0.5), 0.0);
    }
}
