//! Runs of many seeds, each with a fault schedule of its own.

use std::ops::Range;
use std::panic;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use tokio::time::sleep;
use tollgate_tests::conclude;
use tollgate_tests::conditions::{INCONCLUSIVE, lost};
use tollgate_tests::load::{Flow, Load, sum};
use tollgate_tests::record::Record;
use tollgate_tests::relay::Relay;
use tollgate_tests::seeds::chosen;
use tollgate_tests::wait;

use crate::fault::Fault;
use crate::fault_injector::{CAPACITY, ENVOYS, FaultInjector, GREEDY, NODES, REFRESH};
use crate::model_clients::{ModelClients, ModelReport};
use crate::observer::{Restarts, fair, never_above, never_dead};
use crate::print_line;
use crate::schedule::{Schedule, Step};
use crate::test_context::{TestContext, print_course, run_test, s};

/// Number of seeds of a plain run.
const SEEDS: u64 = 50;
/// The tenant under its capacity, and its load on each Envoy.
const CALM: (&str, f64) = ("calm", 70.0);
/// Tolerance around a fair share.
const NEAR: f64 = 0.08;
/// Most refreshes until shares are fair, once all leases are known. Four suffice (report, give back,
/// acknowledge, receive), two of them early ones; the machine may be slow.
const SHARING_MAX: f64 = 10.0;
/// Longest time from the last fault until shares are fair: a new master is elected and has learned,
/// clients have come back from their backoff, and some reserve.
const SETTLING: Duration = Duration::from_secs(25);

#[test]
fn the_laws_hold_whatever_fails() {
    let failures = seeds().filter_map(|seed| Some((seed, failure(seed)?)));
    let failures: Vec<(u64, String)> = failures.collect();
    let failed: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
    // Inconclusive only if all of them are.
    let is_inconclusive = |(_, message): &(u64, String)| message.starts_with(INCONCLUSIVE);
    let prefix = match failures.first() {
        Some((_, message)) if failures.iter().all(is_inconclusive) => format!("{message}\n"),
        _ => String::new(),
    };
    assert!(
        failed.is_empty(),
        "{prefix}seeds {failed:?} failed; repeat one with: just test-cluster 1 SEED"
    );
}

/// Runs a seed, and returns the failure's message if a law was broken.
fn failure(seed: u64) -> Option<String> {
    let schedule = Schedule::of(seed);
    print_line(&format!("seed {seed}: {schedule}"));
    let name = format!("cluster-{seed}");
    let result = panic::catch_unwind(|| {
        run_test(&name, async |test| {
            let run = SeedRun::start(test, seed, schedule).await?;
            print_line(&format!("seed {seed}: {}", run.inject_faults(test).await?));
            Ok(())
        });
    });
    let message = result.err()?;
    let message = message
        .downcast::<String>()
        .map_or_else(|_| String::new(), |message| *message);
    print_line(&format!(
        "seed {seed}: FAILED: {}",
        message.lines().next().unwrap_or_default()
    ));
    Some(message)
}

/// Seeds to play.
pub(crate) fn seeds() -> Range<u64> {
    chosen(0..SEEDS)
}

/// One seed's run.
struct SeedRun {
    schedule: Schedule,
    injector: FaultInjector,
    load: Load,
    models: ModelClients,
    restarts: Restarts,
}

/// Recovery times after the last fault.
struct SettlingTimes {
    /// From the end of the last fault until shares were fair.
    healing: Duration,
    /// From when the master knew all leases until they were fair.
    sharing: Duration,
}

/// The observations of a run.
struct RunRecord<'a> {
    records: &'a [Record],
    span: Range<Duration>,
    restarts: &'a Restarts,
    report: ModelReport,
    settled: SettlingTimes,
}

// === impl SeedRun ===

impl SeedRun {
    async fn start(test: &TestContext, seed: u64, schedule: Schedule) -> Result<Self> {
        let injector = FaultInjector::start(test, schedule.shards).await?;
        let model_relays: Vec<_> = injector.model_relays.iter().map(Relay::address).collect();
        let models = ModelClients::start(&model_relays, CAPACITY, seed)?;
        let envoys = injector.proxies.iter().map(|proxy| proxy.envoy.address());
        let greedy = envoys.clone().zip(schedule.offered);
        let greedy = greedy.map(|(to, rate)| Flow::new(to, GREEDY, f64::from(rate)));
        let calm = envoys.map(|to| Flow::new(to, CALM.0, CALM.1));
        let load = Load::start(greedy.chain(calm).collect::<Vec<_>>());
        let run = Self {
            schedule,
            injector,
            load,
            models,
            restarts: Restarts::default(),
        };
        // The first masters learn as well.
        run.shares_are_fair(Duration::ZERO).await?;
        Ok(run)
    }

    /// Injects all faults, waits for the recovery, and returns the summary of the observations.
    async fn inject_faults(mut self, test: &TestContext) -> Result<String> {
        let begun = self.load.elapsed();
        let mut nodes = vec![0; self.schedule.events.len()];
        for (at, step) in self.schedule.steps() {
            self.load.run_until(begun + at).await;
            match step {
                Step::Begin(place) => nodes[place] = self.begin(test, place).await?,
                Step::End(place) => {
                    let fault = self.schedule.events[place].fault;
                    self.injector.end(fault, nodes[place])?;
                }
            }
        }
        self.injector.cluster.wait_until_ready().await?;
        let settled = self.settles().await?;
        let ended = self.load.elapsed();
        self.load.run_until(ended + s(1.0)).await;
        let records = self.load.stop().await?;
        let report = self.models.stop().await?;
        let observed = RunRecord {
            records: &records,
            span: begun..ended,
            restarts: &self.restarts,
            report,
            settled,
        };
        let summary = observed.judge(&self.schedule);
        if summary.is_err() {
            for (name, record) in ["greedy east", "greedy west", "calm east", "calm west"]
                .iter()
                .zip(&records)
            {
                print_course(name, record);
            }
        }
        summary
    }

    async fn begin(&mut self, test: &TestContext, place: usize) -> Result<usize> {
        let fault = self.schedule.events[place].fault;
        let from = self.load.elapsed();
        let node = self.injector.begin(test, fault).await?;
        if let Fault::RestartEnvoy(envoy) = fault {
            self.restarts[envoy].push(from..self.load.elapsed());
        }
        Ok(node)
    }

    /// Waits until shares are fair, first in the leases and then in the admitted rates.
    async fn settles(&self) -> Result<SettlingTimes> {
        let healed = self.load.elapsed();
        let known = wait::until("the master to know all leases", SETTLING, async || {
            ensure!(self.leases_of_both().await?.is_some(), "it still learns");
            Ok(self.load.elapsed())
        })
        .await?;
        let shared = wait::until("leases to be fair", SETTLING, async || {
            let has = self
                .leases_of_both()
                .await?
                .context("the master learns again")?;
            self.near(has)?;
            Ok(self.load.elapsed())
        })
        .await?;
        let fair = self.shares_are_fair(healed).await?;
        Ok(SettlingTimes {
            healing: fair.saturating_sub(healed),
            sharing: shared.saturating_sub(known),
        })
    }

    /// Leases of both Envoys, once their master has finished learning and knows both.
    async fn leases_of_both(&self) -> Result<Option<[f64; ENVOYS]>> {
        let scope = format!("tenant/{GREEDY}");
        for node in 0..NODES {
            let leases = self
                .injector
                .cluster
                .coordinator(node)
                .leases(&scope)
                .await?;
            let Some(leases) = leases else { continue };
            let has = ["east", "west"].map(|name| leases.has(name));
            if !leases.learning && has.iter().all(|has| *has > 0.0) {
                return Ok(Some(has));
            }
        }
        Ok(None)
    }

    /// Waits for a second, all of it after `since`, in which both Envoys admitted their fair shares, and
    /// returns its beginning.
    async fn shares_are_fair(&self, since: Duration) -> Result<Duration> {
        let window = s(1.0);
        wait::until("fair shares", SETTLING, async || {
            sleep(s(0.1)).await;
            let from = self.load.elapsed().saturating_sub(window);
            ensure!(from >= since, "no whole second has passed");
            let mut rates = [0.0; ENVOYS];
            for (flow, rate) in rates.iter_mut().enumerate() {
                let record = self.load.record(flow);
                *rate = record.admitted_per_second(from..from + window);
            }
            self.near(rates)?;
            Ok(from)
        })
        .await
    }

    fn near(&self, rates: [f64; ENVOYS]) -> Result<()> {
        let fair = fair(self.schedule.offered);
        let near = |(rate, fair): (&f64, &f64)| (rate - fair).abs() <= NEAR * fair;
        let all = rates.iter().zip(&fair).all(near);
        ensure!(all, "{rates:?} instead of {fair:?}");
        Ok(())
    }
}

// === impl RunRecord ===

impl RunRecord<'_> {
    /// Checks the observations against the laws, and summarises them.
    fn judge(&self, schedule: &Schedule) -> Result<String> {
        let (greedy, calm) = self.records.split_at(ENVOYS);
        let most = never_above(&sum(greedy), self.restarts);
        let most = most.map_err(unless_unfair)?;
        for (record, restarts) in greedy.iter().zip(self.restarts) {
            never_dead(record, &self.span, restarts).map_err(unless_unfair)?;
        }
        let calm = sum(calm).within(self.span.clone());
        conclude!(
            calm.refused == 0 || !schedule.spares_leases(),
            "a lease was lost: {calm:?}"
        );
        let report = self.report;
        conclude!(
            report.most > 0.9 * CAPACITY,
            "the model clients never used the capacity: {report:?}"
        );
        let refreshes = self.settled.sharing.as_secs_f64() / REFRESH.as_secs_f64();
        conclude!(
            refreshes <= SHARING_MAX,
            "shares were fair only {refreshes:.1} refreshes after all leases were known"
        );
        Ok(format!(
            "at most {most}; calm: {} refused, {} failed; models: {} answers, {} failures, \
             {} restarts, {} requests of dead runs, {} terms, at most {:.1}/s; fair {:.1} s after the last fault, {refreshes:.1} \
             refreshes after all leases were known",
            calm.refused,
            calm.failed,
            report.answers,
            report.failures,
            report.restarts,
            report.of_dead_runs,
            report.terms,
            report.most,
            self.settled.healing.as_secs_f64(),
        ))
    }
}

/// Marks `error` as inconclusive if the conditions were not fair.
fn unless_unfair(error: Error) -> Error {
    match lost() {
        lost if lost.is_fair() => error,
        lost => error.context(format!("{INCONCLUSIVE} {lost}")),
    }
}
