//! Events of a scenario, planned and random.

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::quantity::{Amount, Span};

/// Event at a time. It is written as a mapping of the time and one change.
#[derive(Clone, Debug, Serialize)]
pub struct EventSpec {
    /// Its time.
    pub at: Span,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// Change of the fleet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A coordinator loses its master with all that it knows.
    Crash(Crash),
    /// A coordinator's master hands its leases over to the next one.
    HandOver(HandOver),
    /// A coordinator's master goes on without knowing whether it is one.
    LoseTerm(LoseTerm),
    /// Processes stand still, and go on.
    Stop(Stop),
    /// Envoys end, and others start in their place.
    Kill(Kill),
    /// Envoys are replaced one batch after the other.
    Deploy(Deploy),
    /// Messages do not get through.
    Cut(Cut),
    /// Envoys are asked for more or less.
    Demand(DemandChange),
    /// Other limits come into force: the number of one of the simulation's.
    Limits(usize),
    /// Envoys lose a worker each, as one whose VM traps.
    Trap(Trap),
    /// A group gets more Envoys, or fewer.
    Scale(Scale),
}

/// Loss of a worker, at once or in the middle of a callback; another takes its place.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trap {
    /// The Envoys.
    pub envoys: Selection,
}

/// Loss of a master.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// The coordinator.
    pub coordinator: String,
    /// Time until the next master.
    #[serde(rename = "for", default)]
    pub lasts: Span,
    /// Whether other nodes follow the election meanwhile, so that the next master knows since when
    /// there was none.
    #[serde(default)]
    pub followed: bool,
}

/// Hand-over from a master to the next.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The coordinator.
    pub coordinator: String,
    /// The shard whose master it is; all if none is named.
    #[serde(default)]
    pub shard: Option<u16>,
    /// Time until the next master.
    #[serde(rename = "for", default)]
    pub lasts: Span,
}

/// Master that is cut off from the election: it serves until its term ends, and another is elected
/// after that.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoseTerm {
    /// The coordinator.
    pub coordinator: String,
    /// The shard whose master it is; all if none is named.
    #[serde(default)]
    pub shard: Option<u16>,
    /// Time that is left of its term.
    pub term: Span,
    /// Time until another master is elected; its term has ended by then.
    pub elected_after: Span,
    /// Time for which its process stands still; calls wait in its sockets.
    #[serde(default)]
    pub asleep: Span,
    /// Time until it notices that it is no longer master, and ends.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Standstill of processes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// A coordinator.
    pub coordinator: Option<String>,
    /// Envoys.
    pub envoys: Option<Selection>,
    /// Its length.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// End of Envoys, which are replaced.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kill {
    /// The Envoys.
    pub envoys: Selection,
    /// Time before their end in which no request comes to them; without it they end without a word.
    pub drain: Span,
    /// Time until others start in their place.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Change of the number of Envoys. The last ones end first.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The group.
    pub group: String,
    /// Number of its Envoys from now on.
    pub to: u32,
    /// Time before the end of an Envoy in which no request comes to it.
    #[serde(default)]
    pub drain: Span,
}

/// Replacement of Envoys, one batch after the other.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// The Envoys.
    #[serde(default)]
    pub envoys: Selection,
    /// Envoys that are replaced at a time.
    pub batch: u32,
    /// Time between two batches.
    pub every: Span,
    /// Time before their end in which no request comes to them; without it they end without a word.
    #[serde(default)]
    pub drain: Span,
    /// Time for which an Envoy is away.
    #[serde(rename = "for", default)]
    pub lasts: Span,
}

/// Messages that do not get through, between the named ones and all others.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cut {
    /// All in a region.
    pub region: Option<String>,
    /// A coordinator.
    pub coordinator: Option<String>,
    /// Whether all below the coordinator is on its side, so that it is cut off from its parent only.
    pub with_below: bool,
    /// Envoys.
    pub envoys: Option<Selection>,
    /// The direction.
    pub direction: Direction,
    /// Its length.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Direction of messages, as the named ones see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both.
    #[default]
    Both,
    /// From them.
    Out,
    /// To them.
    In,
}

/// Change of the requests that come to Envoys, of all demand there. Several at a time lie on each
/// other in the order in which they began, and each ends by itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DemandChange {
    /// The Envoys.
    pub envoys: Selection,
    /// Requests per second of each, from now on.
    pub set: Option<Amount>,
    /// Requests per second more.
    pub add: Option<Amount>,
    /// Times as many.
    pub times: Option<Amount>,
    /// Its length; for good if it is zero.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// Envoys that something happens to; all if nothing is said.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Those of a group.
    pub group: Option<String>,
    /// So many of them, which the seed chooses.
    pub count: Option<u32>,
}

/// Random events, as in Doorman's last scenario.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mishaps {
    /// Time of the first.
    pub from: Span,
    /// Time between two.
    pub every: Span,
    /// Weight of an Envoy that is asked for more.
    pub spike: u32,
    /// Requests per second that it is asked for more.
    pub spike_adds: Amount,
    /// Weight of a coordinator that loses its master.
    pub lose_master: u32,
    /// Longest time until its next one.
    pub lost_for: Span,
    /// Weight of a coordinator that gets another master at once.
    pub elect: u32,
    /// Whether other nodes follow the election while a master is lost.
    pub followed: bool,
}

// === impl EventSpec ===

impl<'de> Deserialize<'de> for EventSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = EventSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EventSpec, A::Error> {
        let (mut at, mut changes) = (Span::default(), Vec::new());
        while let Some(name) = map.next_key::<String>()? {
            match Change::read(&name, &mut map)? {
                Some(change) => changes.push(change),
                None => at = map.next_value()?,
            }
        }
        let count = changes.len();
        match changes.pop() {
            Some(change) if count == 1 => Ok(EventSpec { at, change }),
            _ => Err(A::Error::custom(format_args!(
                "names {count} changes; one event is one"
            ))),
        }
    }
}

// === impl Change ===

impl Change {
    /// Reads the change of a name; none if that is the time's.
    fn read<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        const FIELDS: &[&str] = &[
            "at",
            "crash",
            "hand_over",
            "lose_term",
            "stop",
            "kill",
            "deploy",
            "cut",
            "demand",
            "limits",
            "trap",
            "scale",
        ];
        Ok(Some(match name {
            "at" => return Ok(None),
            "crash" => Self::Crash(map.next_value()?),
            "hand_over" => Self::HandOver(map.next_value()?),
            "lose_term" => Self::LoseTerm(map.next_value()?),
            "stop" => Self::Stop(map.next_value()?),
            "kill" => Self::Kill(map.next_value()?),
            "deploy" => Self::Deploy(map.next_value()?),
            "cut" => Self::Cut(map.next_value()?),
            "demand" => Self::Demand(map.next_value()?),
            "limits" => Self::Limits(map.next_value()?),
            "trap" => Self::Trap(map.next_value()?),
            "scale" => Self::Scale(map.next_value()?),
            other => return Err(A::Error::unknown_field(other, FIELDS)),
        }))
    }

    /// Returns its name, the coordinator that it names, and the Envoys among which it chooses.
    pub(crate) fn named(&self) -> (&'static str, Option<&String>, Option<&Selection>) {
        match self {
            Self::Crash(crash) => ("crash", Some(&crash.coordinator), None),
            Self::HandOver(left) => ("hand_over", Some(&left.coordinator), None),
            Self::LoseTerm(lost) => ("lose_term", Some(&lost.coordinator), None),
            Self::Stop(stop) => ("stop", stop.coordinator.as_ref(), stop.envoys.as_ref()),
            Self::Kill(kill) => ("kill", None, Some(&kill.envoys)),
            Self::Deploy(deploy) => ("deploy", None, Some(&deploy.envoys)),
            Self::Cut(cut) => ("cut", cut.coordinator.as_ref(), cut.envoys.as_ref()),
            Self::Demand(demand) => ("demand", None, Some(&demand.envoys)),
            Self::Limits(_) => ("limits", None, None),
            Self::Trap(trap) => ("trap", None, Some(&trap.envoys)),
            Self::Scale(_) => ("scale", None, None),
        }
    }
}

// === impl Mishaps ===

impl Mishaps {
    /// Returns the weights up to and with `spike`, `lose_master` and `elect`.
    pub(crate) fn weights(&self) -> [u64; 3] {
        let spike = u64::from(self.spike);
        let loss = spike + u64::from(self.lose_master);
        [spike, loss, loss + u64::from(self.elect)]
    }
}
