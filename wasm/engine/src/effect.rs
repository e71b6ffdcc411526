//! Things that an engine wants done after a callback, as data.

use core::time::Duration;

use tollgate_core::units::Tokens;

use crate::config::RuleId;
use crate::refusal::{LimitStatus, Refusal};

/// Something that the embedder does after a callback of the engine, in the order of
/// [`Engine::poll_effect`](crate::Engine::poll_effect).
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A request that waited goes on. If its stream has gone, the embedder says so with
    /// [`Engine::end_stream`](crate::Engine::end_stream).
    Resume {
        /// The stream of the request.
        stream: u32,
        /// The wait that is over.
        waited: Waited,
        /// Remarks for logs and the response.
        report: Report,
    },
    /// A request that waited is refused.
    Deny {
        /// The stream of the request.
        stream: u32,
        /// The wait that is over.
        waited: Waited,
        /// Why, and for how long.
        refusal: Refusal,
    },
    /// The bytes of the stream's bodies so far are due to be counted, with
    /// [`Engine::count_bytes`](crate::Engine::count_bytes).
    CountBytes {
        /// The stream that goes on.
        stream: u32,
    },
    /// Counters are due to be published.
    Publish,
}

/// Wait of a request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The time since the request came.
    pub time: Duration,
    /// True if it waited for its turn, or else only for a first lease.
    pub queued: bool,
}

/// Remarks on a request that goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The refusal that had no effect, if a rule in shadow mode would have refused the request.
    pub shadowed: Option<Refusal>,
    /// The refusal that the upstream is told of, if a rule that marks would have refused the request.
    pub marked: Option<Refusal>,
    /// States of the request's buckets, if the configuration asks for it.
    pub limits: Vec<(RuleId, LimitStatus)>,
}

/// Facts that the engine needs at the end of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamNeeds {
    /// True if the bytes of its bodies count.
    pub bytes: bool,
    /// The rules whose cost of the stream is known only now.
    pub costs: Vec<RuleId>,
}

/// Facts about a stream that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// The bytes of its bodies, of the request and of the response, if they count and are known.
    pub bytes: Option<[u64; 2]>,
    /// The cost of the request as far as it is known, for each rule in [`StreamNeeds::costs`]. Where it is not the
    /// request has cost what it took.
    pub costs: Vec<(RuleId, Tokens)>,
    /// Rules by which the cost was to be known, and was not.
    pub unknown: u64,
}
