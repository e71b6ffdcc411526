//! Streams that count somewhere until they end: in flight, with bytes that pass, or with their final
//! cost.
//!
//! The obvious way to count bytes is to be called for each part of a body. That costs an entry into
//! the VM for each part of every stream, whether its scope has a limit on bytes or not, for a module
//! exports a callback or does not. The proxy itself counts the bytes of each stream, and can be asked
//! at any time. So a worker has the streams of limited scopes counted on its ticks, and each once
//! more when it ends, whatever ends it: an answer, a reset, a time limit, the end of a tunnel.

use std::collections::BTreeMap;

use tollgate_core::lease::Unit;
use tollgate_core::units::{Instant, Tokens};

use super::bytes::BYTES;
use super::final_cost::Reserved;
use super::meters::Meter;
use super::{Admission, Charge, Request, Target, entry};
use crate::config::RuleId;
use crate::effect::{StreamEnd, StreamNeeds};
use crate::host::Host;
use crate::process::Process;
use crate::shared_table::or_later;

/// Streams whose bytes are counted in one round, at most.
const LOOKS_PER_ROUND: usize = 512;
/// Rounds in which every stream is counted once, if there are not too many: a fifth of a second at
/// the default tick.
const ROUNDS_PER_LOOK: usize = 10;

/// Streams of one worker that count until they end.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: BTreeMap<u32, OpenStream>,
    /// The stream at which the next round begins to count.
    next: u32,
}

/// Stream that goes on.
#[derive(Clone, Debug)]
struct OpenStream {
    targets: Vec<StreamTarget>,
    /// Bytes of bodies that have been counted, in the order of [`BYTES`]; none if no target counts
    /// bytes.
    counted: Option<[u64; 2]>,
}

/// Entry in which a stream counts.
#[derive(Clone, Copy, Debug)]
struct StreamTarget {
    target: Target,
    /// The stream has a permit there, of those that there are while `Entry::permits_lost` is this.
    permit: Option<u32>,
    /// Tokens that it was charged, if only its end tells what it has cost.
    reserved: Option<Reserved>,
    /// Bytes of the request's body that earlier passes were charged here.
    prepaid_bytes: u64,
    /// Bytes that are still expected, in the order of [`BYTES`].
    expected: [u64; 2],
}

// === impl StreamTarget ===

impl StreamTarget {
    /// Returns the bytes that earlier passes were charged here.
    fn prepaid_of(&self, unit: Unit) -> u64 {
        match unit {
            Unit::RequestBytes => self.prepaid_bytes,
            _ => 0,
        }
    }

    /// Notes that `bytes` have come. Returns how many of them were expected.
    fn take_expected(&mut self, unit: Unit, bytes: u64) -> u64 {
        let mut units = BYTES.into_iter().zip(&mut self.expected);
        let Some((_, expected)) = units.find(|(other, _)| *other == unit) else {
            return 0;
        };
        let came = bytes.min(*expected);
        *expected = expected.saturating_sub(came);
        came
    }
}

// === impl Streams ===

impl Streams {
    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}

// === impl Admission ===

impl Admission {
    /// Returns whether a stream is remembered until it ends.
    #[inline]
    pub(crate) fn remembers(&self, stream: u32) -> bool {
        !self.streams.open.is_empty() && self.streams.open.contains_key(&stream)
    }

    /// Returns the number of streams that are remembered until they end.
    #[cfg(test)]
    pub(crate) fn streams_open(&self) -> usize {
        self.streams.len()
    }

    /// Returns the facts that are needed of a stream that has ended.
    pub(crate) fn stream_needs(&self, stream: u32) -> StreamNeeds {
        let Some(open) = self.streams.open.get(&stream) else {
            return StreamNeeds::default();
        };
        let late = open
            .targets
            .iter()
            .filter(|target| target.reserved.is_some());
        let mut costs: Vec<RuleId> = late.map(|late| RuleId(late.target.rule)).collect();
        costs.sort_unstable();
        costs.dedup();
        StreamNeeds {
            bytes: open.counted.is_some(),
            costs,
        }
    }

    /// Remembers the stream of a request that goes on.
    #[cold]
    pub(crate) fn open_stream<H: Host>(&mut self, process: &mut Process<H>, request: &Request) {
        let now = if request.has_final_cost {
            process.host.now()
        } else {
            Instant::ZERO
        };
        let mut open = OpenStream {
            targets: Vec::new(),
            counted: None,
        };
        for (index, target) in request.targets().iter().enumerate() {
            let has_final_cost = process.rules.final_cost(target.rule).is_some();
            let reserved = has_final_cost.then(|| request.reserved_at(index, now));
            if let Some(reserved) = reserved.filter(|_| target.is_own()) {
                process.stats.tokens_reserved.add(reserved.taken.whole());
            }
            let Some(entry) = entry(&mut self.tables, *target) else {
                continue;
            };
            entry.open(reserved);
            let meters = entry.meters.as_ref();
            let meters = meters.filter(|meters| meters.counts_streams());
            if meters.is_none() && reserved.is_none() {
                continue;
            }
            let permits = meters.and_then(|meters| meters.permits.as_ref());
            let permits = permits.filter(|_| request.has_taken_permit(index));
            let permit = permits.map(|_| entry.permits_lost);
            let counts_bytes = meters.is_some_and(|meters| meters.counts_bytes());
            let prepaid = request.prepaid.as_ref();
            open.targets.push(StreamTarget {
                target: *target,
                permit,
                reserved,
                prepaid_bytes: prepaid.map_or(0, |prepaid| prepaid.bytes_of(target.bucket())),
                expected: BYTES.map(|unit| {
                    let meter = entry.meters.as_mut().and_then(|meters| meters.meter(unit));
                    // One that has come before was charged then.
                    let meter = meter.filter(|_| prepaid.is_none());
                    meter.map_or(0, Meter::expect)
                }),
            });
            if counts_bytes {
                open.counted = Some([0, 0]);
            }
            entry.streams = entry.streams.saturating_add(1);
        }
        self.streams.open.insert(request.stream, open);
    }

    /// Forgets a stream that has ended, and charges for it. What comes back of its `charge` is no part of that any
    /// more.
    pub(crate) fn end_stream<H: Host>(
        &mut self,
        process: &mut Process<H>,
        stream: u32,
        end: &StreamEnd,
        mut charge: Option<&mut Charge>,
    ) {
        let Some(mut open) = self.streams.open.remove(&stream) else {
            return;
        };
        process.stats.costs_unknown.add(end.unknown);
        if let Some(bytes) = end.bytes {
            self.count_more(process, &mut open, bytes);
        }
        let sizes = open.counted.filter(|_| end.bytes.is_some());
        for ended in &open.targets {
            if let Some(reserved) = ended.reserved {
                let mut costs = end.costs.iter();
                let cost = costs.find(|(rule, _)| rule.0 == ended.target.rule);
                let cost = cost.map(|(_, cost)| *cost);
                self.end_cost(process, ended.target, cost, reserved);
                let comes_back = |cost| reserved.surplus(cost) > Tokens::ZERO;
                if let Some(charge) = charge.as_deref_mut()
                    && cost.is_some_and(comes_back)
                {
                    charge.forget(ended.target.bucket());
                }
            }
            self.end_in(process, *ended, sizes);
        }
    }

    fn end_in<H: Host>(
        &mut self,
        process: &mut Process<H>,
        ended: StreamTarget,
        sizes: Option<[u64; 2]>,
    ) {
        let Some(entry) = entry(&mut self.tables, ended.target) else {
            return;
        };
        entry.streams = entry.streams.saturating_sub(1);
        let has_permit = ended.permit == Some(entry.permits_lost);
        let Some(meters) = &mut entry.meters else {
            return;
        };
        for (unit, expected) in BYTES.into_iter().zip(ended.expected) {
            if let Some(meter) = meters.meter(unit) {
                meter.expect_less(expected);
            }
        }
        for (unit, bytes) in BYTES.into_iter().zip(sizes.into_iter().flatten()) {
            if let Some(meter) = meters.meter(unit) {
                meter.learn(bytes);
            }
        }
        let has_spare = meters.is_unsettled();
        let permits = meters.permits.as_mut().filter(|_| has_permit);
        if permits.is_some_and(|permits| permits.put_back())
            // Permits that are not given back now are on the next tick.
            && let Err(error) = or_later(self.report_use(process, ended.target))
        {
            process.fail(&error);
        }
        if has_spare {
            self.enqueue(ended.target);
        }
    }

    /// Returns the streams whose bytes are to be counted in this round, each in its turn.
    pub(crate) fn streams_to_count(&mut self) -> Vec<u32> {
        let all = self.streams.open.len();
        let looks = all.div_ceil(ROUNDS_PER_LOOK).min(LOOKS_PER_ROUND);
        let mut streams = Vec::new();
        for _ in 0..looks {
            let from = self.streams.next;
            let Some((stream, open)) = self.streams.open.range(from..).next() else {
                self.streams.next = 0;
                break;
            };
            self.streams.next = stream.saturating_add(1);
            if open.counted.is_some() {
                streams.push(*stream);
            }
        }
        streams
    }

    /// Counts the bytes of bodies that a stream has had since the last look; `bytes` are those of the
    /// request and of the response so far.
    pub(crate) fn count_bytes<H: Host>(
        &mut self,
        process: &mut Process<H>,
        stream: u32,
        bytes: [u64; 2],
    ) {
        let Some(mut open) = self.streams.open.remove(&stream) else {
            return;
        };
        self.count_more(process, &mut open, bytes);
        self.streams.open.insert(stream, open);
    }

    fn count_more<H: Host>(
        &mut self,
        process: &mut Process<H>,
        open: &mut OpenStream,
        bytes: [u64; 2],
    ) {
        let Some(counted) = &mut open.counted else {
            return;
        };
        for ((unit, before), size) in BYTES.into_iter().zip(counted).zip(bytes) {
            let from = *before;
            *before = size.max(from);
            for open in &mut open.targets {
                let more = size.saturating_sub(from.max(open.prepaid_of(unit)));
                if more > 0 {
                    let expected = open.take_expected(unit, more);
                    self.charge(process, open.target, unit, more, expected);
                }
            }
        }
    }
}
