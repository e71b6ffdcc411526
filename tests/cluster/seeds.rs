//! Many seeds, each a run of its own.

use std::env;
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
use tollgate_tests::wait;

use crate::fault::Fault;
use crate::models::{Models, Report};
use crate::observer::{Restarts, fair, never_above, never_dead};
use crate::say;
use crate::scene::{Scene, play, print_course, s};
use crate::schedule::{Schedule, Step};
use crate::stage::{CAPACITY, ENVOYS, GREEDY, NODES, REFRESH, Stage};

/// How many seeds a plain run tries.
const SEEDS: u64 = 50;
/// What each Envoy is offered of the tenant that has enough.
const CALM: (&str, f64) = ("calm", 70.0);
/// How near to its fair share an Envoy is when all is well.
const NEAR: f64 = 0.08;
/// In how many refreshes shares are fair once all leases are known. Four suffice (tell, give back,
/// acknowledge, receive), two of them early ones; the machine may be slow.
const SHARING_MAX: f64 = 10.0;
/// How long after the last fault everything has settled, at most: a new master is elected and has
/// learned, clients that gave up for a while have come back, and then some.
const SETTLING: Duration = Duration::from_secs(25);

#[test]
fn the_laws_hold_whatever_fails() {
    let failures = seeds().filter_map(|seed| Some((seed, failure(seed)?)));
    let failures: Vec<(u64, String)> = failures.collect();
    let failed: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
    // Inconclusive only if all of them are.
    let is_inconclusive = |(_, said): &(u64, String)| said.starts_with(INCONCLUSIVE);
    let prefix = match failures.first() {
        Some((_, said)) if failures.iter().all(is_inconclusive) => format!("{said}\n"),
        _ => String::new(),
    };
    assert!(
        failed.is_empty(),
        "{prefix}seeds {failed:?} failed; play one again with: just test-cluster 1 SEED"
    );
}

/// Plays a seed; what was said, beside all logs, if a law was broken.
fn failure(seed: u64) -> Option<String> {
    let schedule = Schedule::of(seed);
    say(&format!("seed {seed}: {schedule}"));
    let name = format!("cluster-{seed}");
    let played = panic::catch_unwind(|| {
        play(&name, async |scene| {
            let run = Run::start(scene, seed, schedule).await?;
            say(&format!("seed {seed}: {}", run.play(scene).await?));
            Ok(())
        });
    });
    let said = played.err()?;
    let said = said
        .downcast::<String>()
        .map_or_else(|_| String::new(), |said| *said);
    say(&format!(
        "seed {seed}: FAILED: {}",
        said.lines().next().unwrap_or_default()
    ));
    Some(said)
}

/// `TOLLGATE_SEED` alone, or as many as `TOLLGATE_SEEDS` says, as `30` or `10..30`.
pub(crate) fn seeds() -> Range<u64> {
    let said = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let number = |text: &str| -> u64 { text.parse().expect("a whole number of seeds") };
    match (said("TOLLGATE_SEED"), said("TOLLGATE_SEEDS")) {
        (Some(seed), _) => number(&seed)..number(&seed) + 1,
        (None, Some(seeds)) => match seeds.split_once("..") {
            Some((from, to)) => number(from)..number(to),
            None => 0..number(&seeds),
        },
        (None, None) => 0..SEEDS,
    }
}

/// One seed's run.
struct Run {
    schedule: Schedule,
    stage: Stage,
    load: Load,
    models: Models,
    restarts: Restarts,
}

/// How all that was broken came back.
struct Settled {
    /// From the end of the last fault until shares were fair.
    healing: Duration,
    /// From when the master knew all leases until shares were fair in its books.
    sharing: Duration,
}

/// What a run has shown.
struct Seen<'a> {
    records: &'a [Record],
    span: Range<Duration>,
    restarts: &'a Restarts,
    report: Report,
    settled: Settled,
}

// === impl Run ===

impl Run {
    async fn start(scene: &Scene, seed: u64, schedule: Schedule) -> Result<Self> {
        let stage = Stage::start(scene, schedule.shards).await?;
        let doors: Vec<_> = stage.doors.iter().map(Relay::address).collect();
        let models = Models::start(&doors, CAPACITY, seed)?;
        let envoys = stage.proxies.iter().map(|proxy| proxy.envoy.address());
        let greedy = envoys.clone().zip(schedule.offered);
        let greedy = greedy.map(|(to, rate)| Flow::new(to, GREEDY, f64::from(rate)));
        let calm = envoys.map(|to| Flow::new(to, CALM.0, CALM.1));
        let load = Load::start(greedy.chain(calm).collect::<Vec<_>>());
        let run = Self {
            schedule,
            stage,
            load,
            models,
            restarts: Restarts::default(),
        };
        // The first masters learn, too.
        run.shares_are_fair(Duration::ZERO).await?;
        Ok(run)
    }

    /// Plays all faults, waits until they are forgotten, and says what was seen.
    async fn play(mut self, scene: &Scene) -> Result<String> {
        let begun = self.load.elapsed();
        let mut nodes = vec![0; self.schedule.events.len()];
        for (at, step) in self.schedule.steps() {
            self.load.run_until(begun + at).await;
            match step {
                Step::Begin(place) => nodes[place] = self.begin(scene, place).await?,
                Step::End(place) => {
                    let fault = self.schedule.events[place].fault;
                    self.stage.end(fault, nodes[place])?;
                }
            }
        }
        self.stage.cluster.is_ready().await?;
        let settled = self.settles().await?;
        let ended = self.load.elapsed();
        self.load.run_until(ended + s(1.0)).await;
        let records = self.load.stop().await?;
        let report = self.models.stop().await?;
        let seen = Seen {
            records: &records,
            span: begun..ended,
            restarts: &self.restarts,
            report,
            settled,
        };
        let said = seen.judge(&self.schedule);
        if said.is_err() {
            for (name, record) in ["greedy east", "greedy west", "calm east", "calm west"]
                .iter()
                .zip(&records)
            {
                print_course(name, record);
            }
        }
        said
    }

    async fn begin(&mut self, scene: &Scene, place: usize) -> Result<usize> {
        let fault = self.schedule.events[place].fault;
        let from = self.load.elapsed();
        let node = self.stage.begin(scene, fault).await?;
        if let Fault::RestartEnvoy(envoy) = fault {
            self.restarts[envoy].push(from..self.load.elapsed());
        }
        Ok(node)
    }

    /// Waits until shares are as they should be, in the books and then in what is admitted.
    async fn settles(&self) -> Result<Settled> {
        let healed = self.load.elapsed();
        let known = wait::until("the master to know all leases", SETTLING, async || {
            ensure!(self.in_books().await?.is_some(), "it does not");
            Ok(self.load.elapsed())
        })
        .await?;
        let shared = wait::until("leases to be fair", SETTLING, async || {
            let has = self.in_books().await?.context("it learns again")?;
            self.near(has)?;
            Ok(self.load.elapsed())
        })
        .await?;
        let fair = self.shares_are_fair(healed).await?;
        Ok(Settled {
            healing: fair.saturating_sub(healed),
            sharing: shared.saturating_sub(known),
        })
    }

    /// What both Envoys have in the books, once their master has learned and heard of both.
    async fn in_books(&self) -> Result<Option<[f64; ENVOYS]>> {
        let scope = format!("tenant/{GREEDY}");
        for node in 0..NODES {
            let books = self.stage.cluster.coordinator(node).books(&scope).await?;
            let Some(books) = books else { continue };
            let has = ["east", "west"].map(|name| books.has(name));
            if !books.learning && has.iter().all(|has| *has > 0.0) {
                return Ok(Some(has));
            }
        }
        Ok(None)
    }

    /// Waits until a second after `since` has passed in which both Envoys admitted their fair shares,
    /// and says when it began.
    async fn shares_are_fair(&self, since: Duration) -> Result<Duration> {
        let window = s(1.0);
        wait::until("fair shares", SETTLING, async || {
            sleep(s(0.1)).await;
            let from = self.load.elapsed().saturating_sub(window);
            ensure!(from >= since, "no second has passed");
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

// === impl Seen ===

impl Seen<'_> {
    /// Holds it against the laws, and says what there was.
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
            "the models never had what there is: {report:?}"
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

/// The same error, or an inconclusive one if the conditions were not fair.
fn unless_unfair(error: Error) -> Error {
    match lost() {
        lost if lost.is_fair() => error,
        lost => error.context(format!("{INCONCLUSIVE} {lost}")),
    }
}
