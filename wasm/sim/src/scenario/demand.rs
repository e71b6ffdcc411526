//! Demand of a scenario: small programs that say how many requests come.

use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess};
use serde::{Deserialize, Serialize, Serializer};

use super::event::Selection;
use super::quantity::{Amount, QuantityError, Scalar, Share, Span};

/// Requests for one scope, or for many.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DemandSpec {
    /// The scope, such as `tenant/acme`.
    pub scope: Option<String>,
    /// Many scopes instead.
    pub scopes: Option<ScopeSpread>,
    /// Envoys at which they come; all if none are named.
    pub envoys: Selection,
    /// Requests per second at each of these.
    pub each: Option<Program>,
    /// Requests per second at all of these together.
    pub total: Option<Program>,
    /// Spacing of requests.
    pub arrivals: Arrivals,
    /// Choice of the Envoy that a request of `total` comes to.
    pub routing: Routing,
    /// Times that a refused request of `total` comes again at most, after the time that its refusal names.
    pub retries: u32,
    /// Time for which each request is in flight.
    pub takes: Span,
    /// Bytes of each request's body, and of its response's.
    pub bytes: [u64; 2],
    /// Tokens that each request takes, one if it does not say. It counts as so many requests in all
    /// figures.
    pub cost: Option<u32>,
    /// Tokens that requests turn out at their ends to have cost; until then they have cost `cost`.
    pub settles: Option<Settles>,
    /// Bodies that are larger than `bytes`.
    pub bulky: Option<Bulky>,
}

/// Costs that the ends of requests tell, distributed log-normally.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settles {
    /// The cost that half of them exceed.
    pub median: Amount,
    /// Standard deviation of the logarithm; none of all alike.
    #[serde(default)]
    pub spread: Amount,
    /// The most that one costs.
    pub most: u32,
    /// Share of requests that end without a cost, and have cost what they took.
    #[serde(default)]
    pub aborted: Share,
}

/// Bodies that are twenty times as large as usual, half of which is counted on the way.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bulky {
    /// Chance of each request.
    pub chance: Share,
    /// Time after which there are none.
    #[serde(default = "for_good")]
    pub until: Span,
}

/// Many scopes, `<prefix>0` to `<prefix><count - 1>`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeSpread {
    /// Start of their ids, such as `tenant/t`.
    pub prefix: String,
    /// Number of scopes.
    pub count: u32,
    /// Exponent of Zipf's law: the request is for the k-th scope in proportion to k to the power of
    /// minus this. Zero is all alike.
    #[serde(default)]
    pub zipf: Amount,
}

/// Spacing of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// At random, as of many clients that know nothing of each other.
    #[default]
    Poisson,
    /// At equal distances.
    Even,
    /// So many at once, at equal distances.
    Bursts(u32),
}

/// Choice of the Envoy that a request comes to, among those that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// At random.
    #[default]
    Random,
    /// To one after the other.
    RoundRobin,
    /// To the one with the fewest requests in flight; of several to one after the other.
    LeastLoaded,
    /// Always to the same, which the key's hash chooses.
    Sticky,
    /// Some to one, then some to the next.
    InTurn(InTurn),
}

/// Caller that uses one Envoy after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InTurn {
    /// Requests that it sends to one.
    pub requests: u32,
    /// Pause before it goes to the next.
    #[serde(default)]
    pub pause: Span,
}

/// Requests per second over time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Program {
    /// Always the same.
    Constant(Amount),
    /// From one rate to another.
    Ramp(Ramp),
    /// One rate, and another for a while.
    Spike(Spike),
    /// A rate and nothing, in turns.
    OnOff(OnOff),
    /// Random steps up and down.
    Walk(Walk),
    /// As recorded.
    Trace(Trace),
}

/// Change from one rate to another.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// Rate before.
    pub from: Amount,
    /// Rate after.
    pub to: Amount,
    /// Time of its beginning.
    #[serde(default)]
    pub at: Span,
    /// Length of the change.
    pub over: Span,
}

/// Another rate for a while.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Spike {
    /// Rate before and after.
    pub from: Amount,
    /// Rate meanwhile.
    pub to: Amount,
    /// Time of its beginning.
    pub at: Span,
    /// Its length.
    #[serde(rename = "for")]
    pub lasts: Span,
}

/// A rate and nothing, in turns.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OnOff {
    /// Rate while it is on.
    pub rate: Amount,
    /// Length of each time with requests.
    pub on: Span,
    /// Length of each time without.
    pub off: Span,
    /// Time of the first beginning.
    #[serde(default)]
    pub at: Span,
}

/// Random steps up and down, of each Envoy for itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// Rate at the start.
    pub from: Amount,
    /// Largest step, as a part of the rate.
    pub by: Share,
    /// Time between two steps.
    pub every: Span,
}

/// Recorded rates: a table of times and rates, each of which holds until the next.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct Trace {
    /// File that the table is read from, until it is.
    pub file: String,
    /// Times from the start, and requests per second from then on; in the order of time.
    pub points: Vec<(Span, Amount)>,
}

// === impl DemandSpec ===

impl DemandSpec {
    /// Returns the number of scopes.
    pub(crate) fn scope_count(&self) -> u64 {
        match &self.scopes {
            Some(spread) => spread.count.into(),
            None => self.scope.is_some().into(),
        }
    }
}

// === impl Bulky ===

fn for_good() -> Span {
    Span::MAX
}

// === impl Program ===

impl FromStr for Program {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        text.parse().map(Self::Constant)
    }
}

impl Scalar for Program {
    const EXPECTED: &'static str = "a number, or one of constant, ramp, spike, on_off, walk, trace";

    fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // Not that of the trait.
        Self::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de> Deserialize<'de> for Program {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(from)
    }
}

impl Serialize for Program {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Constant(rate) => rate.serialize(to),
            other => Self::serialize(other, to),
        }
    }
}

// === impl Trace ===

impl From<String> for Trace {
    fn from(file: String) -> Self {
        let points = Vec::new();
        Self { file, points }
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> Self {
        trace.file
    }
}
