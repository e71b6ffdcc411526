//! A simulated fleet beside the model of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tollgate_sim::observer::{MessageContent, Observer, SentMessage};
use tollgate_sim::simulation::Simulation;

use crate::fleet::{Load, Traffic, level_name, loads};
use crate::memory::{cpu_seconds, resident};
use crate::scenario_file::ScenarioFile;
use crate::units::{Units, answer_len, refresh_len, release_len};

/// Messages of one level.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    resources: u64,
    releases: u64,
    bytes_up: u64,
    bytes_down: u64,
}

/// Counts messages from the end of the start-up on.
struct MessageCounter {
    from: Duration,
    levels: Rc<RefCell<Vec<Counted>>>,
}

/// A scenario that has been played.
pub(crate) struct Outcome {
    simulation: Simulation,
    levels: Rc<RefCell<Vec<Counted>>>,
    expected: Vec<Load>,
    /// Bytes, and seconds of CPU, that it took.
    memory: f64,
    cpu: f64,
}

// === impl Outcome ===

impl Outcome {
    /// Plays the scenario of `path`.
    ///
    /// # Errors
    /// If it is none that the model knows.
    pub(crate) fn of(path: &str) -> Result<Self> {
        let file = ScenarioFile::read(path)?;
        let expected = loads(&file.scenario, file.refresh(), file.min_refresh());
        let (memory, cpu) = (resident(), cpu_seconds());
        let levels = Rc::new(RefCell::new(Vec::new()));
        let counter = MessageCounter {
            from: file.scenario.measure_from.0,
            levels: levels.clone(),
        };
        let limits = file.limits();
        let simulation = Simulation::new(file.scenario, vec![Box::new(limits)]);
        let mut simulation = simulation.map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            anyhow!("{path}: {}", errors.join("; "))
        })?;
        simulation.observe(Box::new(counter));
        while simulation.step() {}
        Ok(Self {
            simulation,
            levels,
            expected,
            memory: resident().saturating_sub(memory) as f64,
            cpu: cpu_seconds() - cpu,
        })
    }

    /// Prints its figures beside the model's.
    pub(crate) fn print(&self, units: &Units) {
        let scenario = self.simulation.scenario();
        let duration = scenario.duration.0;
        let sites = self.expected.last().copied().unwrap_or_default();
        let (envoys, slots) = (sites.clients, sites.leases);
        println!(
            "\n{envoys} Envoys for {duration:?}, {} events: {:.0} s of CPU, {:.2} GB",
            self.simulation.events(),
            self.cpu,
            self.memory / 1e9
        );
        println!("| level | figure | steady | simulated | at most | simulated / steady |");
        println!("|---|---|---|---|---|---|");
        let seconds = (duration - scenario.measure_from.0).as_secs_f64();
        for (level, (load, state)) in self
            .expected
            .iter()
            .zip(self.simulation.levels())
            .enumerate()
        {
            let name = level_name(level, self.expected.len());
            row(&name, "resources", load.resources, state.resources as f64);
            row(&name, "leases", load.leases, state.leases as f64);
            let counted = self.levels.borrow().get(level).copied();
            counted
                .unwrap_or_default()
                .print(&name, load, (units, seconds));
        }
        let tables: f64 = self.expected.iter().map(|load| load.memory(units)).sum();
        let model = tables + envoys * units.envoy + slots * units.slot;
        row("all", "memory, MB", model / 1e6, self.memory / 1e6);
        let last = self.simulation.samples().last();
        let leases = last.map_or(0, |sample| sample.leases);
        println!("Leases that Envoys have at the end: {leases} of {slots}");
        println!("Broken laws: {}", self.simulation.violations().len());
    }
}

// === impl Counted ===

impl Counted {
    fn print(&self, level: &str, load: &Load, (units, seconds): (&Units, f64)) {
        let (steady, at_most) = (load.steady(), load.at_most());
        let row = |name: &str, count: u64, figure: &dyn Fn(&Traffic) -> f64| {
            let simulated = count as f64 / seconds;
            between(level, name, (figure(&steady), simulated, figure(&at_most)));
        };
        row("calls/s", self.calls, &|traffic| traffic.calls);
        row("refreshes/s", self.resources, &|traffic| traffic.refreshes);
        row("bytes/s up", self.bytes_up, &|traffic| {
            traffic.bytes_up(units)
        });
        row("bytes/s down", self.bytes_down, &|traffic| {
            traffic.bytes_down(units)
        });
        let releases = self.releases as f64 / seconds;
        println!("| {level} | releases/s | | {releases:.0} | | |");
    }
}

// === free functions ===

fn row(level: &str, name: &str, model: f64, simulated: f64) {
    let ratio = simulated / model;
    println!("| {level} | {name} | {model:.0} | {simulated:.0} | | {ratio:.2} |");
}

/// Prints a figure between its bounds.
fn between(level: &str, name: &str, (steady, simulated, at_most): (f64, f64, f64)) {
    let ratio = simulated / steady;
    let [steady, simulated, at_most] = [steady, simulated, at_most].map(whole);
    println!("| {level} | {name} | {steady} | {simulated} | {at_most} | {ratio:.2} |");
}

/// Returns a whole number, or a small one with its first decimal.
fn whole(number: f64) -> String {
    match number {
        n if n > 0.0 && n < 10.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

// === impl MessageCounter ===

impl Observer for MessageCounter {
    fn message(&mut self, message: &SentMessage<'_>) {
        if message.at < self.from {
            return;
        }
        let levels = &mut *self.levels.borrow_mut();
        let index = message.level as usize;
        if levels.len() <= index {
            levels.resize(index + 1, Counted::default());
        }
        let level = &mut levels[index];
        match message.content {
            MessageContent::Refresh(refresh) => {
                level.calls += 1;
                let asks = refresh.scopes.iter().map(|scope| scope.asks.len() as u64);
                level.resources += asks.sum::<u64>();
                level.bytes_up += refresh_len(refresh) as u64;
            }
            MessageContent::Release(release) => {
                level.releases += release.resources.len() as u64;
                level.bytes_up += release_len(release) as u64;
            }
            MessageContent::Answer(answer) => level.bytes_down += answer_len(answer) as u64,
            // The model is of leases that are asked for at their intervals.
            MessageContent::Nudge(_) => {}
        }
    }
}
