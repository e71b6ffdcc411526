//! Schedule of faults, made from a seed: their kinds, times and lengths.

use std::fmt;
use std::time::Duration;

use tollgate_sim::random::Random;
use tollgate_tests::relay::LinkQuality;

use crate::fault::{Fault, FaultTarget};
use crate::fault_injector::{ENVOYS, NODES};

/// Time within which all faults begin.
const BEGIN_MS_MAX: u64 = 8_000;
/// Shortest and longest fault; the longest outlasts a term and a lease.
const LASTS_MS: [u64; 2] = [200, 7_000];
/// Offset of a clock fault from the machine's own clock.
const CLOCK_STEP_S: i64 = 600;

/// The schedule of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Number of shards.
    pub(crate) shards: u16,
    /// Offered load of the tenant over its capacity, by Envoy, per second.
    pub(crate) offered: [u32; ENVOYS],
    /// The faults, in order of their beginning.
    pub(crate) events: Vec<Event>,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The beginning, from the start of the run.
    pub(crate) at: Duration,
    /// The length; zero for faults that end by themselves.
    pub(crate) lasts: Duration,
    /// The fault.
    pub(crate) fault: Fault,
}

/// A step of a run: an event, by its place, begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Begin(usize),
    End(usize),
}

// === impl Schedule ===

impl Schedule {
    /// Makes the schedule of `seed`, the same on every machine.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let shards = random.pick(&[1, 3]);
        let offered = random.pick(&[[150, 150], [300, 60], [300, 300]]);
        let count = random.between(1, 6);
        let mut events: Vec<Event> = (0..count).map(|_| Event::random(random)).collect();
        events.sort_by_key(|event| event.at);
        Self {
            shards,
            offered,
            events,
        }
    }

    /// Whether no client may lose its lease.
    pub(crate) fn spares_leases(&self) -> bool {
        matches!(&self.events[..], [event] if event.fault.spares_leases())
    }

    /// All steps with their times, in order.
    pub(crate) fn steps(&self) -> Vec<(Duration, Step)> {
        let mut steps = Vec::new();
        for (place, event) in self.events.iter().enumerate() {
            steps.push((event.at, Step::Begin(place)));
            steps.push((event.at + event.lasts, Step::End(place)));
        }
        steps.sort_by_key(|(at, _)| *at);
        steps
    }
}

/// One line: `0.4s Kill(Master) for 2.1s, ...`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shards {}, offered {:?}", self.shards, self.offered)?;
        for Event { at, lasts, fault } in &self.events {
            write!(f, ", {at:.1?} {fault:?}")?;
            if !lasts.is_zero() {
                write!(f, " for {lasts:.1?}")?;
            }
        }
        Ok(())
    }
}

// === impl Event ===

impl Event {
    fn random(random: &mut Random) -> Self {
        let fault = Fault::random(random);
        let [least, most] = LASTS_MS;
        let lasts = Duration::from_millis(random.between(least, most));
        let at = Duration::from_millis(random.between(0, BEGIN_MS_MAX));
        let ends = !matches!(fault, Fault::Roll | Fault::RestartEnvoy(_));
        let lasts = if ends { lasts } else { Duration::ZERO };
        Self { at, lasts, fault }
    }
}

// === impl Fault ===

impl Fault {
    fn random(random: &mut Random) -> Self {
        let target = if random.chance(50) {
            FaultTarget::Master
        } else {
            FaultTarget::Node(random.between(0, NODES as u64 - 1) as usize)
        };
        let envoy = random.between(0, ENVOYS as u64 - 1) as usize;
        let quality = quality(random);
        match random.between(0, 11) {
            0 | 1 => Self::Kill(target),
            2 => Self::Freeze(target),
            3 | 4 => Self::ToEtcd(target, quality),
            5 => Self::FromPeers(target, quality),
            6 => Self::FromClients(target, quality),
            7 => Self::OfEnvoy(envoy, quality),
            8 => Self::EtcdMembers(random.pick(&[1, 2, 2])),
            9 => Self::Roll,
            10 => Self::RestartEnvoy(envoy),
            _ => Self::Clock(target, random.pick(&[-CLOCK_STEP_S, CLOCK_STEP_S])),
        }
    }
}

fn quality(random: &mut Random) -> LinkQuality {
    let slow = Duration::from_millis(random.between(20, 600));
    random.pick(&[
        LinkQuality::Cut,
        LinkQuality::Silent,
        LinkQuality::Deaf,
        LinkQuality::Mute,
        LinkQuality::Slow(slow),
    ])
}

#[cfg(test)]
mod tests {
    use std::mem::{Discriminant, discriminant};

    use super::*;

    fn faults() -> impl Iterator<Item = Fault> {
        (0..50).flat_map(|seed| {
            Schedule::of(seed)
                .events
                .into_iter()
                .map(|event| event.fault)
        })
    }

    #[test]
    fn a_seed_always_makes_the_same_and_another_one_something_else() {
        for seed in 0..50 {
            assert_eq!(Schedule::of(seed), Schedule::of(seed));
            assert_ne!(Schedule::of(seed), Schedule::of(seed + 1));
        }
    }

    #[test]
    fn fifty_seeds_have_every_fault_and_every_network() {
        let mut kinds: Vec<Discriminant<Fault>> = Vec::new();
        let mut networks: Vec<Discriminant<LinkQuality>> = Vec::new();
        for fault in faults() {
            kinds.push(discriminant(&fault));
            if let Fault::ToEtcd(_, quality)
            | Fault::FromPeers(_, quality)
            | Fault::FromClients(_, quality)
            | Fault::OfEnvoy(_, quality) = fault
            {
                networks.push(discriminant(&quality));
            }
        }
        let occurs = |kind| kinds.contains(&discriminant(&kind));
        assert!(
            occurs(Fault::Kill(FaultTarget::Master)) && occurs(Fault::Freeze(FaultTarget::Master))
        );
        assert!(occurs(Fault::Roll) && occurs(Fault::RestartEnvoy(0)));
        assert!(occurs(Fault::Clock(FaultTarget::Master, 0)) && occurs(Fault::EtcdMembers(2)));
        for network in [
            LinkQuality::Cut,
            LinkQuality::Silent,
            LinkQuality::Deaf,
            LinkQuality::Mute,
            LinkQuality::Slow(Duration::ZERO),
        ] {
            assert!(networks.contains(&discriminant(&network)), "{network:?}");
            let [etcd, peers] = [
                Fault::ToEtcd(FaultTarget::Master, network),
                Fault::FromPeers(FaultTarget::Master, network),
            ];
            assert!(occurs(etcd) && occurs(peers));
            let [clients, envoy] = [
                Fault::FromClients(FaultTarget::Master, network),
                Fault::OfEnvoy(0, network),
            ];
            assert!(occurs(clients) && occurs(envoy));
        }
    }

    #[test]
    fn whatever_begins_ends_in_order() {
        for seed in 0..50 {
            let schedule = Schedule::of(seed);
            let steps = schedule.steps();
            assert_eq!(steps.len(), 2 * schedule.events.len());
            assert!(steps.is_sorted_by_key(|(at, _)| *at));
            for place in 0..schedule.events.len() {
                let step = |step| steps.iter().position(|(_, other)| *other == step);
                assert!(step(Step::Begin(place)) < step(Step::End(place)), "{seed}");
            }
        }
    }
}
