//! Setting a master's wall clock ten minutes forward and back ends neither its mastership nor its term.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;
use tollgate_tests::cluster::{Cluster, ClusterSpec};
use tollgate_tests::connection::get_once;
use tollgate_tests::wait;

use crate::print_line;
use crate::test_context::{TestContext, run_test, s};

const DAY_S: i64 = 24 * 3600;
/// Offsets of the clock in seconds, one after the other.
const STEPS_S: [i64; 4] = [600, -600, 1200, 0];
const LEASE_S: u64 = 2;

#[test]
fn a_clock_that_is_set_ends_no_term() {
    run_test("a_clock_that_is_set_ends_no_term", set_clock);
}

async fn set_clock(test: &TestContext) -> Result<()> {
    let spec = ClusterSpec {
        members: 1,
        nodes: 1,
        shards: 1,
        lease_s: LEASE_S,
        limits: "limits: []\n",
    };
    let cluster = Cluster::start(test.dir(), &spec).await?;
    let term = term(&cluster).await?;
    let mut before = 0;
    for step in STEPS_S {
        if !cluster.set_clock(0, step)? {
            print_line("SKIPPED: there is no libfaketime, so no coordinator's clock is set");
            return Ok(());
        }
        // The HTTP server caches the latest date it has written, so a step back is not visible.
        if step > before {
            wait::until("the clock to be set", s(20.0), async || {
                let off_by = off_by(&cluster).await?;
                ensure!((off_by - step).abs() <= 5, "it is off by {off_by} s");
                Ok(())
            })
            .await?;
        }
        before = step;
        // Longer than the lease in etcd, which it has to keep alive.
        for _ in 0..15 * LEASE_S {
            sleep(s(0.1)).await;
            ensure!(cluster.master_of(0).await? == 0);
        }
    }
    assert_eq!(self::term(&cluster).await?, term);
    Ok(())
}

/// Number of times that the node was elected.
async fn term(cluster: &Cluster) -> Result<u64> {
    let metrics = cluster.coordinator(0).metrics().await?;
    let elections = metrics.get("tollgate_elections_total");
    Ok(*elections.context("a count")? as u64)
}

/// Offset in seconds of the node's clock, from the `Date` header of its HTTP answers.
#[expect(
    clippy::disallowed_methods,
    reason = "it is the wall clock that is compared"
)]
async fn off_by(cluster: &Cluster) -> Result<i64> {
    let answer = get_once(cluster.coordinator(0).http(), "/healthz", &[]).await?;
    let date = answer.header("date").context("a date")?;
    let time = date.split(' ').nth(4).context("a time")?;
    let mut theirs = 0;
    for part in time.split(':') {
        theirs = theirs * 60 + part.parse::<i64>()?;
    }
    let ours = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let off_by = (theirs - ours as i64).rem_euclid(DAY_S);
    Ok(if off_by > DAY_S / 2 {
        off_by - DAY_S
    } else {
        off_by
    })
}
