//! Estimate of a scenario's cost, before it is played.

use super::{DemandChange, DemandSpec, EnvoyGroup, Program, Scenario, Selection};

// === impl Scenario ===

impl Scenario {
    /// Returns about how many events playing the scenario takes, at most: requests, and ticks of
    /// workers. Refreshes are few beside them.
    pub fn expected_events(&self) -> f64 {
        let seconds = self.duration.0.as_secs_f64();
        let ticks = self.envoys.iter().map(|group| ticks(group, seconds));
        let streams = self.demand.iter().map(|demand| self.requests(demand));
        let requests: f64 = streams.sum();
        let changes = self.events.iter();
        let changes = changes.filter_map(|event| {
            let left = seconds - event.at.0.as_secs_f64();
            let change = event.demand.as_ref()?;
            Some(self.more_requests(change, left, requests))
        });
        let mishaps = self.mishaps.as_ref().map_or(0.0, |mishaps| {
            let count = seconds / mishaps.every.0.as_secs_f64().max(1e-3);
            // Each adds for good: for half the time that is left, in the mean.
            count + count * mishaps.spike_adds.0 * seconds / 2.0
        });
        requests + changes.sum::<f64>() + ticks.sum::<f64>() + mishaps
    }

    /// Returns the requests of one entry of the demand.
    fn requests(&self, demand: &DemandSpec) -> f64 {
        let seconds = self.duration.0.as_secs_f64();
        let of = |program: &Program| most_requests(program, seconds);
        let each = demand.each.as_ref().map_or(0.0, of);
        let total = demand.total.as_ref().map_or(0.0, of);
        each * self.selected(&demand.envoys) + total
    }

    /// Returns the requests that a change of the demand adds, which has so many seconds `left`, to
    /// about so many of the whole run.
    fn more_requests(&self, change: &DemandChange, left: f64, requests: f64) -> f64 {
        let lasts = match change.lasts.0.is_zero() {
            true => left,
            false => left.min(change.lasts.0.as_secs_f64()),
        };
        let rate = change.set.into_iter().chain(change.add);
        let rate: f64 = rate.map(|rate| rate.0).sum();
        let selected = self.selected(&change.envoys);
        let part = selected / (self.envoy_count() as f64).max(1.0);
        let times = change.times.map_or(0.0, |times| (times.0 - 1.0).max(0.0));
        let streams = self.demand.len() as f64;
        rate * selected * streams * lasts + requests * part * times
    }

    fn selected(&self, selection: &Selection) -> f64 {
        let all = self.selectable(selection);
        selection.count.map_or(all, |count| all.min(count as usize)) as f64
    }
}

// === free functions ===

fn ticks(group: &EnvoyGroup, seconds: f64) -> f64 {
    let workers = f64::from(group.count) * f64::from(group.workers);
    workers * seconds / group.tick.0.as_secs_f64().max(1e-3)
}

/// Returns the requests of a program in so many seconds, at most; of a walk those at its first rate.
fn most_requests(program: &Program, seconds: f64) -> f64 {
    match program {
        Program::Constant(rate) => rate.0 * seconds,
        Program::Ramp(ramp) => ramp.from.0.max(ramp.to.0) * seconds,
        Program::Spike(spike) => {
            let within = seconds.min(spike.lasts.0.as_secs_f64());
            spike.from.0 * (seconds - within) + spike.to.0 * within
        }
        Program::OnOff(on_off) => {
            let [on, off] = [on_off.on, on_off.off].map(|span| span.0.as_secs_f64());
            on_off.rate.0 * (seconds * on / (on + off).max(1e-3) + on).min(seconds)
        }
        Program::Walk(walk) => walk.from.0 * seconds,
        Program::Trace(trace) => {
            let ends = trace
                .points
                .iter()
                .skip(1)
                .map(|(at, _)| at.0.as_secs_f64());
            let ends = ends.chain([seconds]);
            let points = trace.points.iter().zip(ends);
            let pieces = points.map(|((from, rate), to)| {
                let length = to.min(seconds) - from.0.as_secs_f64();
                rate.0 * length.max(0.0)
            });
            pieces.sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Amount, OnOff, Ramp, Span, Spike, Trace, Walk};

    #[test]
    fn requests_are_counted_by_their_programs() {
        let secs = Span::from_secs;
        let (ten, thirty) = (Amount(10.0), Amount(30.0));
        let rows = [
            (Program::Constant(ten), 1000.0),
            (
                Program::Ramp(Ramp {
                    from: ten,
                    to: thirty,
                    at: secs(5),
                    over: secs(9),
                }),
                3000.0,
            ),
            (
                Program::Spike(Spike {
                    from: ten,
                    to: thirty,
                    at: secs(5),
                    lasts: secs(20),
                }),
                1400.0,
            ),
            (
                Program::OnOff(OnOff {
                    rate: ten,
                    on: secs(10),
                    off: secs(40),
                    at: secs(0),
                }),
                300.0,
            ),
            (
                Program::Walk(Walk {
                    from: ten,
                    by: crate::scenario::Share(0.1),
                    every: secs(1),
                }),
                1000.0,
            ),
            (
                Program::Trace(Trace {
                    file: String::new(),
                    points: vec![(secs(20), ten), (secs(70), thirty), (secs(200), ten)],
                }),
                500.0 + 900.0,
            ),
        ];
        for (program, want) in rows {
            let got = most_requests(&program, 100.0);
            assert!((got - want).abs() < 1e-6, "{program:?}: {got}");
        }
    }
}
