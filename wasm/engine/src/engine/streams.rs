//! Streams that count somewhere until they end: in flight, with bytes that pass, or with what they
//! turn out to have cost.
//!
//! The obvious way to count bytes is to be called for each part of a body. That costs an entry into
//! the VM for each part of every stream, whether its scope has a limit on bytes or not, for a module
//! exports a callback or does not. Envoy itself counts the bytes of each stream, and says so at any
//! time. So the worker looks at the streams of limited scopes on its ticks, and at each once more when
//! it ends. The end is Envoy's `on_delete`, which follows on whatever ends a stream: an answer, a
//! reset, a time limit, a local reply, the end of a tunnel.

use std::collections::BTreeMap;

use tollgate_core::units::Tokens;

use super::units::BYTES;
use super::{Engine, Request, RuleId, Target, entry};
use crate::effect::{Effect, StreamEnd, StreamNeeds};
use crate::host::Host;

/// Streams whose bytes are looked at in one round, at most.
const LOOKS_PER_ROUND: usize = 512;
/// Rounds in which every stream is looked at once, if there are not too many: a fifth of a second
/// at the default tick.
const ROUNDS_PER_LOOK: usize = 10;

/// The streams of one worker that are not forgotten yet, by context.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: BTreeMap<u32, Open>,
    /// The context at which the next round begins to look.
    next: u32,
}

/// A stream that goes on.
#[derive(Clone, Debug)]
struct Open {
    targets: Vec<Watched>,
    /// Bytes of bodies that have been counted, in the order of [`BYTES`]; none if no target counts
    /// bytes.
    counted: Option<[u64; 2]>,
    /// Tokens that were taken of each target at the beginning.
    paid: Tokens,
}

/// An entry in which a stream counts.
#[derive(Clone, Copy, Debug)]
struct Watched {
    target: Target,
    /// It has a permit there, of those that there are while `Entry::permits_lost` is this.
    permit: Option<u32>,
    /// What it costs is known only at its end.
    priced_late: bool,
}

impl<H: Host> Engine<H> {
    /// Returns whether a stream that goes on is remembered, so that its end must be told.
    #[inline]
    pub fn remembers(&self, stream: u32) -> bool {
        !self.streams.open.is_empty() && self.streams.open.contains_key(&stream)
    }

    /// Returns the facts that [`Engine::end_stream`] needs of a stream that has ended.
    pub fn stream_needs(&self, stream: u32) -> StreamNeeds {
        let Some(open) = self.streams.open.get(&stream) else {
            return StreamNeeds::default();
        };
        let late = open.targets.iter().filter(|watched| watched.priced_late);
        let mut costs: Vec<RuleId> = late.map(|watched| RuleId(watched.target.rule)).collect();
        costs.sort_unstable();
        costs.dedup();
        StreamNeeds {
            bytes: open.counted.is_some(),
            costs,
        }
    }

    /// How many streams count somewhere.
    pub(super) fn watched(&self) -> usize {
        self.streams.open.len()
    }

    /// Remembers a stream that goes on.
    #[cold]
    pub(super) fn watch(&mut self, targets: &Request) {
        let mut open = Open {
            targets: Vec::new(),
            counted: None,
            paid: targets.cost,
        };
        for target in targets.as_slice() {
            let priced_late = self.is_priced_late(*target);
            let Some(entry) = entry(&mut self.tables, *target) else {
                continue;
            };
            let meters = entry.meters.as_ref();
            let meters = meters.filter(|meters| meters.counts_streams());
            if meters.is_none() && !priced_late {
                continue;
            }
            let permits = meters.and_then(|meters| meters.permits.as_ref());
            open.targets.push(Watched {
                target: *target,
                permit: permits.map(|_| entry.permits_lost),
                priced_late,
            });
            if meters.is_some_and(|meters| meters.counts_bytes()) {
                open.counted = Some([0; 2]);
            }
            entry.streams = entry.streams.saturating_add(1);
        }
        self.streams.open.insert(targets.stream, open);
    }

    /// Forgets a stream that has ended, and charges for it.
    pub(super) fn settle_stream(&mut self, context: u32, end: &StreamEnd) {
        let Some(mut open) = self.streams.open.remove(&context) else {
            return;
        };
        self.count_more(&mut open, end.bytes);
        for watched in &open.targets {
            let mut costs = end.costs.iter();
            let cost = costs.find(|(rule, _)| rule.0 == watched.target.rule);
            if let Some((_, cost)) = cost.filter(|_| watched.priced_late) {
                self.charge_final_cost(watched.target, *cost, open.paid);
            }
            self.end_in(*watched, open.counted);
        }
    }

    fn end_in(&mut self, watched: Watched, counted: Option<[u64; 2]>) {
        let Some(entry) = entry(&mut self.tables, watched.target) else {
            return;
        };
        entry.streams = entry.streams.saturating_sub(1);
        let has_permit = watched.permit == Some(entry.permits_lost);
        let Some(meters) = &mut entry.meters else {
            return;
        };
        for (unit, bytes) in BYTES.into_iter().zip(counted.unwrap_or_default()) {
            if let Some(meter) = meters.meter(unit).filter(|_| counted.is_some()) {
                meter.learn(bytes);
            }
        }
        let permits = meters.permits.as_mut().filter(|_| has_permit);
        if permits.is_some_and(|permits| permits.put_back())
            // What is not given back now is on the next tick.
            && let Err(error) = self.report_use(watched.target)
        {
            self.complain(&error);
        }
    }

    /// Has the bytes counted that have passed in some of the streams, so that all have their turn.
    pub(super) fn look_at_streams(&mut self) {
        let all = self.streams.open.len();
        let looks = all.div_ceil(ROUNDS_PER_LOOK).min(LOOKS_PER_ROUND);
        for _ in 0..looks {
            let from = self.streams.next;
            let mut turn = self.streams.open.range(from..);
            let Some(context) = turn.next().map(|(context, _)| *context) else {
                self.streams.next = 0;
                return;
            };
            self.streams.next = context.saturating_add(1);
            let open = self.streams.open.get(&context);
            if open.is_some_and(|open| open.counted.is_some()) {
                let effect = Effect::CountBytes { stream: context };
                self.effects.push_back(effect);
            }
        }
    }

    /// Counts the bytes of bodies that a stream has had since the last look; `bytes` are those of the
    /// request and of the response so far.
    pub fn count_bytes(&mut self, stream: u32, bytes: [u64; 2]) {
        let Some(mut open) = self.streams.open.remove(&stream) else {
            return;
        };
        self.count_more(&mut open, bytes);
        self.streams.open.insert(stream, open);
    }

    fn count_more(&mut self, open: &mut Open, bytes: [u64; 2]) {
        let Some(counted) = &mut open.counted else {
            return;
        };
        for ((unit, before), size) in BYTES.into_iter().zip(counted).zip(bytes) {
            let more = size.saturating_sub(*before);
            *before = size.max(*before);
            if more > 0 {
                for watched in &open.targets {
                    self.charge(watched.target, unit, more);
                }
            }
        }
    }
}
