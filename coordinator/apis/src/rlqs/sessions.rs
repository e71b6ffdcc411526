//! Which lease client a stream is.
//!
//! A proxy does not say who it is, and goes on with its assignments when its stream is cut. If its
//! next stream were a new client, the leases behind those assignments would keep it from getting its
//! share until they expire. So the next stream takes the leases over where it is certain whose they
//! are:
//!
//! - A proxy that names itself, by the metadata [`NAME`] of its call, is the same client at every
//!   node and after every restart.
//! - Else a stream that ended is taken over by the next one from the same address, for the same
//!   domain and with the same buckets, if its proxy had such before. Of two that ended with the same
//!   buckets it is not certain which, and a proxy that has just started had none before.
//!
//! A stream is a [run](Run::Term) of its client, ordered by the time at which it began.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::lease::{ClientId, ClientRun, Epoch, IdError, Run};
use tollgate_core::units::Instant;

/// Metadata by which a proxy names itself.
pub(super) const NAME: &str = "tollgate-client";

/// Before the id of every client.
const PREFIX: &str = "rlqs";

/// The most ended streams that are remembered.
const ENDED_MAX: usize = 10_000;

/// Ended streams of a node; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<EndedSessions>>);

#[derive(Debug, Default)]
struct EndedSessions {
    /// The term of the newest run.
    last: u64,
    ended: BTreeMap<StreamOrigin, Vec<EndedStream>>,
    /// Equals their number.
    len: usize,
}

/// Stream that has ended while its proxy goes on with its assignments.
#[derive(Debug)]
struct EndedStream {
    client: ClientId,
    /// Fingerprint of its buckets.
    had: u64,
    /// End of its assignments.
    until: Instant,
}

/// Where a stream comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamOrigin {
    pub(super) address: IpAddr,
    pub(super) domain: String,
    /// Name that the proxy gives itself.
    pub(super) name: Option<String>,
}

/// Client of one stream.
#[derive(Clone, Debug)]
pub(super) struct Session {
    origin: StreamOrigin,
    pub(super) client: ClientRun,
    /// Whether this client has the leases of the proxy's stream before.
    pub(super) is_known: bool,
}

// === impl Sessions ===

impl Sessions {
    /// Begins the stream of `origin`, which is `wall` after 1970. `had` is the fingerprint of its
    /// buckets if its proxy had some of them before.
    ///
    /// # Errors
    /// If the name that the proxy gives itself cannot be used.
    pub(super) fn begin(
        &self,
        now: Instant,
        wall: Duration,
        origin: StreamOrigin,
        had: Option<u64>,
    ) -> Result<Session, IdError> {
        let mut sessions = self.lock();
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        sessions.last = millis.max(sessions.last.saturating_add(1));
        let last = sessions.last;
        let (id, is_known) = match &origin.name {
            Some(name) if name.is_empty() => return Err(IdError::Empty),
            Some(name) => {
                let id = format!("{PREFIX}/{name}/{}", origin.domain);
                (ClientId::new(&id)?, true)
            }
            None => match sessions.take(now, &origin, had) {
                Some(id) => (id, true),
                None => {
                    let id = format!("{PREFIX}/{}/{last:x}", origin.address);
                    (ClientId::new(&id)?, false)
                }
            },
        };
        let run = Run::Term(Epoch(last));
        Ok(Session {
            origin,
            client: ClientRun { id, run },
            is_known,
        })
    }

    /// Ends the stream of `session`, whose assignments last until `until`. `had` is the fingerprint of
    /// its buckets.
    pub(super) fn end(&self, session: Session, had: u64, until: Option<Instant>) {
        let mut sessions = self.lock();
        let Some(until) = until.filter(|_| session.origin.name.is_none()) else {
            return;
        };
        if sessions.len < ENDED_MAX {
            sessions.len += 1;
            let ended = sessions.ended.entry(session.origin).or_default();
            ended.push(EndedStream {
                client: session.client.id,
                had,
                until,
            });
        }
    }

    /// Forgets streams whose assignments have ended.
    pub(super) fn forget_over(&self, now: Instant) {
        let mut sessions = self.lock();
        sessions.ended.retain(|_, ended| {
            ended.retain(|stream| stream.until > now);
            !ended.is_empty()
        });
        sessions.len = sessions.ended.values().map(Vec::len).sum();
    }

    fn lock(&self) -> MutexGuard<'_, EndedSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl EndedSessions ===

impl EndedSessions {
    /// Takes the client of the one stream of `origin` that has ended with the buckets `had` and whose
    /// assignments last.
    fn take(&mut self, now: Instant, origin: &StreamOrigin, had: Option<u64>) -> Option<ClientId> {
        let ended = self.ended.get_mut(origin)?;
        let before = ended.len();
        ended.retain(|stream| stream.until > now);
        let is_same = |stream: &EndedStream| Some(stream.had) == had;
        let taken = match ended.iter().filter(|stream| is_same(stream)).count() {
            1 => ended.extract_if(.., |stream| is_same(stream)).next(),
            _ => None,
        };
        self.len = self.len.saturating_sub(before.saturating_sub(ended.len()));
        if ended.is_empty() {
            self.ended.remove(origin);
        }
        taken.map(|stream| stream.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fingerprint of the buckets of most streams here.
    const HAD: Option<u64> = Some(7);

    fn origin(address: u8, name: Option<&str>) -> StreamOrigin {
        StreamOrigin {
            address: IpAddr::from([10, 0, 0, address]),
            domain: "edge".to_owned(),
            name: name.map(str::to_owned),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(seconds))
    }

    fn begin(sessions: &Sessions, now: u64, of: &StreamOrigin, had: Option<u64>) -> Session {
        let wall = Duration::from_secs(1_700_000_000);
        sessions.begin(at(now), wall, of.clone(), had).unwrap()
    }

    #[test]
    fn a_cut_stream_is_taken_over_by_the_next_one_of_its_proxy() {
        let sessions = Sessions::default();
        let here = origin(1, None);
        let first = begin(&sessions, 0, &here, None);
        assert!(!first.is_known);
        sessions.end(first.clone(), 7, Some(at(9)));
        // A proxy that has just started, or one elsewhere, is none that was cut.
        let fresh = begin(&sessions, 3, &here, None);
        assert!(!fresh.is_known && fresh.client.id != first.client.id);
        let elsewhere = begin(&sessions, 3, &origin(2, None), HAD);
        assert!(!elsewhere.is_known);
        let again = begin(&sessions, 5, &here, HAD);
        assert!(again.is_known);
        assert_eq!(again.client.id, first.client.id);
        assert!(again.client.run > first.client.run);
        // Only once, and not when its assignments are over.
        assert!(!begin(&sessions, 5, &here, HAD).is_known);
        sessions.end(again, 7, Some(at(9)));
        assert!(!begin(&sessions, 9, &here, HAD).is_known);
    }

    #[test]
    fn of_two_that_were_cut_none_is_taken_over() {
        let sessions = Sessions::default();
        let here = origin(1, None);
        for _ in 0..2 {
            let session = begin(&sessions, 0, &here, None);
            sessions.end(session, 7, Some(at(9)));
        }
        assert!(!begin(&sessions, 1, &here, HAD).is_known);
    }

    /// Two proxies behind one address: the one that comes back is not given the other's leases.
    #[test]
    fn a_stream_with_other_buckets_is_not_taken_over() {
        let sessions = Sessions::default();
        let here = origin(1, None);
        let [first, second] = [7, 8].map(|had| {
            let session = begin(&sessions, 0, &here, None);
            sessions.end(session.clone(), had, Some(at(9)));
            session.client.id
        });
        assert!(!begin(&sessions, 1, &here, Some(9)).is_known);
        assert_eq!(begin(&sessions, 1, &here, Some(8)).client.id, second);
        assert_eq!(begin(&sessions, 1, &here, Some(7)).client.id, first);
        assert!(sessions.lock().ended.is_empty());
        assert_eq!(sessions.lock().len, 0);
    }

    #[test]
    fn a_proxy_with_a_name_is_always_the_same_client() {
        let sessions = Sessions::default();
        let named = begin(&sessions, 0, &origin(1, Some("edge-1")), None);
        assert_eq!(named.client.id.as_str(), "rlqs/edge-1/edge");
        sessions.end(named, 7, Some(at(9)));
        let elsewhere = begin(&Sessions::default(), 99, &origin(2, Some("edge-1")), None);
        assert!(elsewhere.is_known);
        assert_eq!(elsewhere.client.id.as_str(), "rlqs/edge-1/edge");
        let wall = Duration::ZERO;
        for (name, rule) in [("", IdError::Empty), ("a\nb", IdError::Control)] {
            let refused = sessions.begin(at(0), wall, origin(1, Some(name)), None);
            assert_eq!(refused.err(), Some(rule));
        }
    }

    #[test]
    fn ended_streams_are_bounded_and_forgotten() {
        let sessions = Sessions::default();
        let session = begin(&sessions, 0, &origin(1, None), None);
        for _ in 0..ENDED_MAX + 5 {
            sessions.end(session.clone(), 7, Some(at(9)));
        }
        assert_eq!(sessions.lock().len, ENDED_MAX);
        sessions.end(session.clone(), 7, None);
        sessions.forget_over(at(8));
        assert_eq!(sessions.lock().len, ENDED_MAX);
        sessions.forget_over(at(9));
        assert_eq!(sessions.lock().len, 0);
        assert!(sessions.lock().ended.is_empty());
    }
}
