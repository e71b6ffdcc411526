//! Recorder of a run: samples, remarks, broken laws, and the sums behind the figures.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::fairness::FairnessLog;
use crate::figures::Figures;
use crate::sample::{Mark, Sample, Violation};
use crate::scenario::Scenario;

/// The most Envoys whose samples are kept.
const ENVOYS_WATCHED: usize = 60;
/// The most broken laws and remarks that are kept.
const REMARKS_MAX: usize = 1000;
/// Part of what is attainable with which a fleet counts as settled.
const SETTLED: f64 = 0.95;

/// Recorder of a run.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) samples: Vec<Sample>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) violations: Vec<Violation>,
    /// Leases whose law was seen broken.
    broken: BTreeSet<String>,
    measure_from: Duration,
    /// Numbers of the scopes and pools that are sampled each.
    pub(crate) watched: Vec<usize>,
    /// Number of the first Envoys that are sampled each.
    pub(crate) watched_envoys: usize,
    /// Sums over the samples that count: capacity, attainable, and handed out.
    sums: [f64; 3],
    pub(crate) fairness: FairnessLog,
    /// Messages until the last sample.
    messages_before: u64,
    /// Counts so far.
    pub(crate) counts: Figures,
    digest: DefaultHasher,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(scenario: &Scenario, watched: Vec<usize>) -> Self {
        Self {
            samples: Vec::new(),
            marks: Vec::new(),
            violations: Vec::new(),
            broken: BTreeSet::new(),
            measure_from: scenario.measure_from.0,
            watched,
            watched_envoys: scenario.envoy_count().min(ENVOYS_WATCHED),
            sums: [0.0; 3],
            fairness: FairnessLog::default(),
            messages_before: 0,
            counts: Figures::default(),
            digest: DefaultHasher::new(),
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn figures(&self, elapsed: Duration) -> Figures {
        let [capacity, attainable, handed_out] = self.sums;
        let fairness = self.fairness.figures(elapsed);
        Figures {
            of_capacity: part(handed_out, capacity),
            of_attainable: part(handed_out, attainable),
            contended: fairness.contended,
            fairness: fairness.index,
            time_to_fair: fairness.mean,
            longest_time_to_fair: fairness.longest,
            unfair_at_end: fairness.unfair,
            violations: self.violations.len(),
            ..self.counts.clone()
        }
    }

    pub(crate) fn mark(&mut self, elapsed: Duration, text: String) {
        text.hash(&mut self.digest);
        if self.marks.len() < REMARKS_MAX {
            let at = elapsed.as_secs_f64();
            self.marks.push(Mark { at, text });
        }
    }

    /// Returns whether the last remark that begins like `text` is not this one.
    pub(crate) fn last_mark_is_not(&self, text: &str) -> bool {
        let word = text.split(' ').next().unwrap_or(text);
        let mut marks = self.marks.iter().rev();
        let last = marks.find(|mark| mark.text.starts_with(word));
        last.is_none_or(|last| last.text != text)
    }

    pub(crate) fn count_message(&mut self, is_lost: bool) {
        self.counts.messages += 1;
        self.counts.messages_lost += u64::from(is_lost);
    }

    /// Returns the number of messages since the last time.
    pub(crate) fn take_messages(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.messages_before, self.counts.messages);
        self.counts.messages - before
    }

    /// Notes that an Envoy has its first lease, `waited` after its first request.
    pub(crate) fn note_first_lease(&mut self, waited: Duration) {
        let waited = waited.as_secs_f64();
        self.counts.first_lease.get_or_insert(waited);
        let longest = &mut self.counts.longest_first_lease;
        *longest = Some(longest.map_or(waited, |longest| longest.max(waited)));
    }

    /// Returns whether samples at `elapsed` count.
    pub(crate) fn measures(&self, elapsed: Duration) -> bool {
        elapsed > self.measure_from
    }

    /// Keeps a sample, in which the scope that is fullest uses `worst` of its capacity.
    pub(crate) fn keep(&mut self, elapsed: Duration, sample: Sample, worst: f64) {
        if sample.attainable > 0.0 && sample.handed_out >= SETTLED * sample.attainable {
            self.counts.settled.get_or_insert(sample.at);
        }
        if self.measures(elapsed) {
            let more = [sample.capacity, sample.attainable, sample.handed_out];
            for (sum, more) in self.sums.iter_mut().zip(more) {
                *sum += more;
            }
            self.counts.samples += 1;
            self.counts.over_capacity += u64::from(worst > 1.0);
            self.counts.worst = self.counts.worst.max(worst);
        }
        (sample.has.to_bits(), sample.leases).hash(&mut self.digest);
        (sample.admitted.to_bits(), sample.refused.to_bits()).hash(&mut self.digest);
        self.samples.push(sample);
    }

    /// Notes that `leases` break law 1, with the numbers of the first time.
    pub(crate) fn refuse(&mut self, elapsed: Duration, leases: String, numbers: &str) {
        if self.violations.len() < REMARKS_MAX && !self.broken.contains(&leases) {
            let at = elapsed.as_secs_f64();
            let text = format!("law 1: {leases} {numbers}");
            self.violations.push(Violation { at, text });
            self.broken.insert(leases);
        }
    }
}

// === free functions ===

fn part(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}
