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

use tollgate_core::lease::Unit;
use tollgate_core::units::Tokens;

use super::units::BYTES;
use super::{Target, Targets, Worker, entry};
use crate::host::{Host, HostError};

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

impl<H: Host> Worker<H> {
    /// Whether the stream `context` is remembered, so that its end must be told.
    #[inline]
    pub(crate) fn remembers(&self, context: u32) -> bool {
        !self.streams.open.is_empty() && self.streams.open.contains_key(&context)
    }

    /// How many streams count somewhere.
    pub(super) fn watched(&self) -> usize {
        self.streams.open.len()
    }

    /// Remembers a stream that goes on.
    #[cold]
    pub(super) fn watch(&mut self, context: u32, targets: &Targets) {
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
        self.streams.open.insert(context, open);
    }

    /// Forgets a stream that has ended, which is the one at hand.
    pub(super) fn end_stream(&mut self, context: u32) {
        let Some(mut open) = self.streams.open.remove(&context) else {
            return;
        };
        self.count_bytes(&mut open);
        for watched in &open.targets {
            if watched.priced_late {
                self.charge_final_cost(watched.target, open.paid);
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

    /// Counts the bytes that have passed in some of the streams, so that all have their turn.
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
            let Some(mut open) = open.filter(|open| open.counted.is_some()).cloned() else {
                continue;
            };
            if self.host.select(context).is_ok() {
                self.count_bytes(&mut open);
                self.streams.open.insert(context, open);
            }
        }
    }

    /// Counts what the stream at hand has had since the last look.
    fn count_bytes(&mut self, open: &mut Open) {
        let Some(counted) = &mut open.counted else {
            return;
        };
        for (unit, before) in BYTES.into_iter().zip(counted) {
            let size = match size(&self.host, unit) {
                Ok(size) => size,
                Err(error) => {
                    self.complain(&error.into());
                    continue;
                }
            };
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

// === free functions ===

/// The bytes of bodies that the stream at hand has had so far.
fn size<H: Host>(host: &H, unit: Unit) -> Result<u64, HostError> {
    let whose = match unit {
        Unit::ResponseBytes => "response",
        _ => "request",
    };
    let size = host.property(&[whose, "size"])?;
    let size = size.as_deref().and_then(|size| size.first_chunk());
    Ok(size.map_or(0, |size| i64::from_le_bytes(*size).max(0).unsigned_abs()))
}
