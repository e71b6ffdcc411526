//! Coverage of runs in trees.

/// Counts of events, to check that the seeds try the intended cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) answers: u64,
    pub(crate) borrowed: u64,
    /// Leases of safe capacity, lent while the parent was away.
    pub(crate) safe_lent: u64,
    /// Leases granted out of such a lease.
    pub(crate) safe_lent_on: u64,
    pub(crate) crashes: u64,
    pub(crate) hand_overs: u64,
    pub(crate) cuts: u64,
    pub(crate) lowered: u64,
    pub(crate) three_levels: u64,
    pub(crate) bands: u64,
    /// Nudges that came to processes and to coordinators, and streams of processes that ended.
    pub(crate) nudged: u64,
    pub(crate) nudged_coordinators: u64,
    pub(crate) watches_ended: u64,
}

// === impl Reached ===

impl Reached {
    /// Returns whether everything happened at least once.
    pub(crate) fn all(&self) -> bool {
        self.counts().iter().all(|count| *count > 0)
    }

    fn counts(&self) -> [u64; 13] {
        let Self {
            answers,
            borrowed,
            safe_lent,
            safe_lent_on,
            crashes,
            hand_overs,
            cuts,
            lowered,
            three_levels,
            bands,
            nudged,
            nudged_coordinators,
            watches_ended,
        } = *self;
        [
            answers,
            borrowed,
            safe_lent,
            safe_lent_on,
            crashes,
            hand_overs,
            cuts,
            lowered,
            three_levels,
            bands,
            nudged,
            nudged_coordinators,
            watches_ended,
        ]
    }
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Self) {
        self.answers += other.answers;
        self.borrowed += other.borrowed;
        self.safe_lent += other.safe_lent;
        self.safe_lent_on += other.safe_lent_on;
        self.crashes += other.crashes;
        self.hand_overs += other.hand_overs;
        self.cuts += other.cuts;
        self.lowered += other.lowered;
        self.three_levels += other.three_levels;
        self.bands += other.bands;
        self.nudged += other.nudged;
        self.nudged_coordinators += other.nudged_coordinators;
        self.watches_ended += other.watches_ended;
    }
}
