//! Streams on which coordinators name resources to processes, and what happens to their messages.

use std::time::Duration;

use tollgate_core::lease::ClientId;
use tollgate_sim::network::Quality;
use tollgate_sim::random::Random;

/// Time after which TCP sends again what was lost.
const SENT_AGAIN: Duration = Duration::from_millis(200);

/// Time after which a process takes a stream for failed that it cannot open.
pub(crate) const NOT_OPENED: Duration = Duration::from_secs(1);

/// gRPC's status of a stream whose coordinator is gone.
pub(crate) const UNAVAILABLE: u32 = 14;

/// Stream of a worker of a process of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) process: usize,
    pub(crate) incarnation: u64,
    pub(crate) token: u32,
}

/// Open streams of the clients of one coordinator or cluster, and the luck of their messages: they
/// draw from a generator of their own, so that the seeds without nudges keep their courses.
pub(crate) struct Watches {
    pub(crate) random: Random,
    open: Vec<(ClientId, Stream)>,
}

// === impl Watches ===

impl Watches {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed.rotate_left(24)),
            open: Vec::new(),
        }
    }

    /// Opens a stream, on which `client` is named from now on.
    pub(crate) fn open(&mut self, client: ClientId, stream: Stream) {
        self.open.push((client, stream));
    }

    /// Returns the open streams of `client`, and forgets those of which `lives` says that nobody is
    /// at the other end.
    pub(crate) fn of(&mut self, client: &ClientId, lives: impl Fn(&Stream) -> bool) -> Vec<Stream> {
        self.open.retain(|(_, stream)| lives(stream));
        let open = self.open.iter();
        let of_client = open.filter(|(of, _)| of == client);
        of_client.map(|(_, stream)| *stream).collect()
    }

    /// Ends each stream with a chance of so many percent. Returns those that have ended, and how long
    /// the news is on its way.
    pub(crate) fn end(&mut self, percent: u64, network: Quality) -> Vec<(Duration, Stream)> {
        let random = &mut self.random;
        let ended = self.open.extract_if(.., |_| random.chance(percent));
        let ended: Vec<_> = ended.map(|(_, stream)| stream).collect();
        let delayed = ended
            .into_iter()
            .map(|stream| (self.delay(network), stream));
        delayed.collect()
    }

    /// Returns the delay of a message that TCP brings for certain: the opening of a stream, or its
    /// end.
    pub(crate) fn delay(&mut self, network: Quality) -> Duration {
        let deliveries = network.deliveries(&mut self.random);
        let late = network.delay_max + SENT_AGAIN;
        deliveries.first().copied().unwrap_or(late)
    }
}
