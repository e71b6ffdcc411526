//! The docker-compose demos, as users start them. `envoy/demo/images/stand-ins.sh` builds images where none
//! can be pulled.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tollgate_tests::connection::get_once;
use tollgate_tests::filter::TENANT_HEADER;
use tollgate_tests::wait;

mod demo;

use crate::demo::Demo;

/// Longest wait for a condition of a demo.
const LIMIT: Duration = Duration::from_secs(120);

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends `count` requests of `tenant` to the Envoy at `port`; returns the numbers of admitted and refused.
async fn ask(port: u16, tenant: &str, count: usize) -> Result<(usize, usize)> {
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..count {
        let answer = get_once(local(port), "/", &[(TENANT_HEADER, tenant)]).await?;
        match answer.status {
            200 => admitted += 1,
            429 => refused += 1,
            other => anyhow::bail!("Envoy answers {other}: {}", answer.body),
        }
    }
    Ok((admitted, refused))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quickstart_limits_each_tenant_and_follows_its_file() -> Result<()> {
    let demo = Demo::start("quickstart", &[])?;
    wait::until("Envoy to serve", LIMIT, async || {
        ask(10000, "acme", 1).await
    })
    .await?;
    wait::until("bolt to be limited", LIMIT, async || {
        let (admitted, refused) = ask(10000, "bolt", 60).await?;
        ensure!(admitted > 0 && refused > 0, "{admitted} of 60 admitted");
        Ok(())
    })
    .await?;
    demo.replace("tollgate.yaml", "rate: 10,", "rate: 100000,")?;
    wait::until("the changed file", LIMIT, async || {
        let (_, refused) = ask(10000, "bolt", 60).await?;
        ensure!(refused == 0, "{refused} of 60 refused");
        Ok(())
    })
    .await?;
    let command = ["tollgate", "get", "limit", "tenant/bolt"];
    let limit = demo.run(&[&["exec", "-T", "coordinator"], &command[..]].concat())?;
    ensure!(limit.contains("100k"), "{limit}");
    // A tenant without requests gives its lease back, and Docker takes seconds to kill.
    let traffic = tokio::spawn(async { while ask(10000, "bolt", 1).await.is_ok() {} });
    demo.check_envoys()?;
    demo.run(&["kill", "coordinator"])?;
    let (admitted, _) = ask(10000, "bolt", 60).await?;
    traffic.abort();
    ensure!(
        admitted == 60,
        "a lease outlives its coordinator: {admitted} of 60"
    );
    Ok(())
}

/// Rate admitted for `tenant` in the last table of the load, per second.
fn admitted(demo: &Demo, tenant: &str) -> Result<f64> {
    let log = demo.run(&["logs", "--no-color", "--tail", "8", "load"])?;
    let line = log.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != tenant);
        words.nth(2)
    });
    let rate = line.with_context(|| format!("no line of {tenant} in {log}"))?;
    Ok(rate.parse()?)
}

/// Waits until the load's table shows `want` for a tenant, within a tenth.
async fn settles(demo: &Demo, tenant: &str, want: f64) -> Result<()> {
    wait::until(&format!("{tenant} to get {want}"), LIMIT, async || {
        let rate = admitted(demo, tenant)?;
        ensure!((rate - want).abs() <= want / 10.0, "{tenant} gets {rate}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn cluster_goes_on_when_a_coordinator_is_killed() -> Result<()> {
    let demo = Demo::start("cluster", &["grafana"])?;
    // acme wants 150 of its 100; bolt and coda share the 300 of gold, of which coda wants 120.
    for (tenant, want) in [("acme", 100.0), ("bolt", 180.0), ("coda", 120.0)] {
        settles(&demo, tenant, want).await?;
    }
    demo.check_envoys()?;
    demo.run(&["kill", "coordinator-1"])?;
    // A tenant without any lease finds a new master.
    wait::until("a newcomer to be served", LIMIT, async || {
        let (admitted, _) = ask(10002, "newcomer", 30).await?;
        ensure!(admitted == 30, "{admitted} of 30");
        Ok(())
    })
    .await?;
    settles(&demo, "acme", 100.0).await?;
    let members = demo.run(&["exec", "-T", "coordinator-2", "tollgate", "status"])?;
    ensure!(members.contains("coordinator-3"), "{members}");
    wait::until("Prometheus to see the Envoys", LIMIT, async || {
        let query = "/api/v1/query?query=count(tollgate_allowed)";
        let answer = get_once(local(9090), query, &[]).await?;
        ensure!(answer.body.contains("\"3\""), "{}", answer.body);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn tree_divides_between_regions_and_outlives_its_root() -> Result<()> {
    let demo = Demo::start("tree", &[])?;
    for (tenant, want) in [("acme", 100.0), ("bolt", 100.0), ("coda", 40.0)] {
        settles(&demo, tenant, want).await?;
    }
    demo.check_envoys()?;
    demo.run(&["kill", "root"])?;
    // Each region falls back to its safe capacity when its lease from the root has expired.
    settles(&demo, "bolt", 40.0).await?;
    demo.run(&["start", "root"])?;
    settles(&demo, "bolt", 100.0).await
}
