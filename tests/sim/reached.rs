//! Coverage of a run, so that seeds that try too little are noticed.

/// Counts of events in a run, to check that the seeds try the intended cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) answers: u64,
    pub(crate) shrunk: u64,
    pub(crate) learned: u64,
    pub(crate) stale: u64,
    pub(crate) dropped: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
    pub(crate) coordinator_crashes: u64,
    pub(crate) without_lease: u64,
    pub(crate) hand_overs: u64,
    pub(crate) cut_off: u64,
    pub(crate) not_master: u64,
    pub(crate) waited: u64,
    pub(crate) traps: u64,
    /// Requests of a dead process that came when another had its id.
    pub(crate) of_dead_runs: u64,
    /// Nudges that came to processes, and streams for them that ended.
    pub(crate) nudged: u64,
    pub(crate) watches_ended: u64,
}

// === impl Reached ===

impl Reached {
    /// Returns whether everything happened at least once.
    pub(crate) fn all(&self) -> bool {
        self.counts().iter().all(|count| *count > 0)
    }

    fn counts(&self) -> [u64; 17] {
        let Self {
            answers,
            shrunk,
            learned,
            stale,
            dropped,
            released,
            lost,
            coordinator_crashes,
            without_lease,
            hand_overs,
            cut_off,
            not_master,
            waited,
            traps,
            of_dead_runs,
            nudged,
            watches_ended,
        } = *self;
        [
            answers,
            shrunk,
            learned,
            stale,
            dropped,
            released,
            lost,
            coordinator_crashes,
            without_lease,
            hand_overs,
            cut_off,
            not_master,
            waited,
            traps,
            of_dead_runs,
            nudged,
            watches_ended,
        ]
    }
}

impl std::ops::AddAssign for Reached {
    fn add_assign(&mut self, other: Self) {
        self.answers += other.answers;
        self.shrunk += other.shrunk;
        self.learned += other.learned;
        self.stale += other.stale;
        self.dropped += other.dropped;
        self.released += other.released;
        self.lost += other.lost;
        self.coordinator_crashes += other.coordinator_crashes;
        self.without_lease += other.without_lease;
        self.hand_overs += other.hand_overs;
        self.cut_off += other.cut_off;
        self.not_master += other.not_master;
        self.waited += other.waited;
        self.traps += other.traps;
        self.of_dead_runs += other.of_dead_runs;
        self.nudged += other.nudged;
        self.watches_ended += other.watches_ended;
    }
}
