//! Course of a rate over time, in pieces that are constant.

use std::rc::Rc;

use super::nanos;
use crate::random::Random;
use crate::scenario::{Amount, Program, Walk};

/// Pieces of a ramp.
const RAMP_STEPS: u64 = 200;
/// Shortest piece of a ramp.
const RAMP_STEP_MIN: u64 = 50_000_000;

/// Rate over time of one stream: its program, and what events have made of it.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    program: Rc<Program>,
    /// Changes in force in the order of their beginnings, with the numbers of those that end.
    overlays: Vec<(Option<u64>, Overlay)>,
    walk: Option<WalkState>,
}

/// Change of a rate by an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlay {
    pub(crate) set: Option<f64>,
    pub(crate) times: f64,
    pub(crate) add: f64,
}

/// Present step of a walk.
#[derive(Clone, Copy, Debug)]
struct WalkState {
    rate: f64,
    /// End of the step.
    until: u64,
}

// === impl Overlay ===

impl Overlay {
    pub(crate) const NONE: Self = Self {
        set: None,
        times: 1.0,
        add: 0.0,
    };

    fn of(self, rate: f64) -> f64 {
        let rate = self.set.unwrap_or(rate) * self.times + self.add;
        rate.clamp(0.0, Amount::MAX.0)
    }

    /// Returns the change of the requests of so many Envoys of which this one is each one's.
    pub(crate) fn of_all(self, envoys: usize) -> Self {
        let envoys = envoys as f64;
        Self {
            set: self.set.map(|rate| rate * envoys),
            add: self.add * envoys,
            ..self
        }
    }

    /// Returns the change that this one and then `next` make.
    fn then(self, next: Self) -> Self {
        match next.set {
            Some(_) => next,
            // They stay finite, so that no rate is zero times infinity.
            None => Self {
                set: self.set,
                times: (self.times * next.times).min(Amount::MAX.0),
                add: (self.add * next.times + next.add).min(Amount::MAX.0),
            },
        }
    }
}

// === impl Course ===

impl Course {
    pub(crate) fn new(program: Rc<Program>) -> Self {
        Self {
            program,
            overlays: Vec::new(),
            walk: None,
        }
    }

    /// Changes the rate for good; a walk goes on from there.
    pub(crate) fn apply(&mut self, change: Overlay) {
        match &mut self.walk {
            Some(walk) => walk.rate = change.of(walk.rate),
            None => {
                self.overlays.push((None, change));
                self.merge();
            }
        }
    }

    /// Changes the rate on top of the program and of earlier changes, until [`Course::lift`] of the
    /// same number.
    pub(crate) fn lay(&mut self, number: u64, change: Overlay) {
        self.overlays.push((Some(number), change));
    }

    /// Ends what [`Course::lay`] began.
    pub(crate) fn lift(&mut self, number: u64) {
        self.overlays.retain(|(known, _)| *known != Some(number));
        self.merge();
    }

    /// Makes neighbouring changes for good one, so that there are no more than of those that end.
    fn merge(&mut self) {
        self.overlays.dedup_by(|next, earlier| {
            let are_for_good = next.0.is_none() && earlier.0.is_none();
            if are_for_good {
                earlier.1 = earlier.1.then(next.1);
            }
            are_for_good
        });
    }

    /// Returns the rate at `at`, in nanoseconds from the start, and the time until which it holds.
    pub(crate) fn piece(&mut self, at: u64, random: &mut Random) -> (f64, u64) {
        let program = self.program.clone();
        let (rate, until) = match &*program {
            Program::Constant(rate) => (rate.0, u64::MAX),
            Program::Spike(spike) => {
                let from = nanos(spike.at.0);
                let to = from.saturating_add(nanos(spike.lasts.0));
                match at {
                    _ if at < from => (spike.from.0, from),
                    _ if at < to => (spike.to.0, to),
                    _ => (spike.from.0, u64::MAX),
                }
            }
            Program::Ramp(ramp) => {
                let (from, over) = (nanos(ramp.at.0), nanos(ramp.over.0).max(1));
                let step = (over / RAMP_STEPS).max(RAMP_STEP_MIN);
                match at.checked_sub(from) {
                    None => (ramp.from.0, from),
                    Some(passed) if passed >= over => (ramp.to.0, u64::MAX),
                    Some(passed) => {
                        let steps = passed / step;
                        let middle = (steps * step + step / 2).min(over);
                        let part = middle as f64 / over as f64;
                        let rate = ramp.from.0 + (ramp.to.0 - ramp.from.0) * part;
                        (rate, from.saturating_add(((steps + 1) * step).min(over)))
                    }
                }
            }
            Program::OnOff(on_off) => {
                let (first, on) = (nanos(on_off.at.0), nanos(on_off.on.0));
                let turn = on.saturating_add(nanos(on_off.off.0)).max(1);
                match at.checked_sub(first) {
                    None => (0.0, first),
                    Some(passed) if passed % turn < on => {
                        (on_off.rate.0, (at - passed % turn).saturating_add(on))
                    }
                    Some(passed) => (0.0, (at - passed % turn).saturating_add(turn)),
                }
            }
            Program::Trace(trace) => {
                let next = trace
                    .points
                    .partition_point(|(from, _)| nanos(from.0) <= at);
                let now = next.checked_sub(1).map(|i| trace.points[i].1.0);
                let until = trace.points.get(next).map(|(from, _)| nanos(from.0));
                (now.unwrap_or(0.0), until.unwrap_or(u64::MAX))
            }
            Program::Walk(walk) => self.walk(walk, at, random),
        };
        let overlays = self.overlays.iter();
        let rate = overlays.fold(rate, |rate, (_, change)| change.of(rate));
        (rate, until)
    }

    fn walk(&mut self, walk: &Walk, at: u64, random: &mut Random) -> (f64, u64) {
        let every = nanos(walk.every.0).max(1);
        let first = WalkState {
            rate: walk.from.0,
            until: (at - at % every).saturating_add(every),
        };
        let mut state = self.walk.unwrap_or(first);
        while state.until <= at && state.until < u64::MAX {
            state.rate *= 1.0 + walk.by.0 * (2.0 * random.fraction() - 1.0);
            state.rate = state.rate.min(Amount::MAX.0);
            state.until = state.until.saturating_add(every);
        }
        self.walk = Some(state);
        (state.rate, state.until)
    }
}
