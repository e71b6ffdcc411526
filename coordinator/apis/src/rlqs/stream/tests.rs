//! Streams with a coordinator that grants what a test says.

use tollgate_config::catalog::template::Template;
use tollgate_core::lease::{Answer, Claim, Epoch, LeaseRequest, LeaseTerms, Origin};
use tollgate_core::units::{MICRO, Tokens};
use tollgate_proto::response::{ScopeAnswer, UnitAnswer};

use super::*;
use crate::rlqs::assignment::{Strategy, TRANSIT};

mod bounds;
mod buckets;

const LEASE: Duration = Duration::from_secs(10);

/// A stream, with a coordinator that grants what a test says.
struct StreamContext {
    state: StreamState,
    now: Instant,
    /// The requests of the last batch, by scope.
    asked: BTreeMap<String, LeaseRequest>,
    released: Vec<String>,
}

/// Answer of the coordinator for one scope.
#[derive(Clone, Copy)]
struct Granted {
    capacity: Option<Capacity>,
    lease: Duration,
    safe: Option<u64>,
    canonical: Option<&'static str>,
}

fn granted(per_second: u64) -> Granted {
    Granted {
        capacity: Some(Capacity::from_whole(per_second)),
        lease: LEASE,
        safe: None,
        canonical: None,
    }
}

const NO_LEASE: Granted = Granted {
    capacity: None,
    lease: LEASE,
    safe: None,
    canonical: None,
};

impl StreamContext {
    fn new() -> Self {
        Self::of(false)
    }

    fn of(is_known: bool) -> Self {
        let domain = RlqsDomain {
            scope: Template::parse("tenant/{tenant}").unwrap(),
            abandon_after: Duration::from_secs(60),
        };
        let mut state = StreamState::new(domain, BucketMemory::default());
        state.is_known = is_known;
        Self {
            state,
            now: Instant::from_nanos(60_000_000_000),
            asked: BTreeMap::new(),
            released: Vec::new(),
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
    }

    fn report(&mut self, usages: &[(&str, u64, u64)]) -> Vec<IgnoredBucket> {
        let usages = usages.iter().map(|(tenant, elapsed_s, requests)| Usage {
            name: name(tenant),
            elapsed: Duration::from_secs(*elapsed_s),
            requests: *requests,
        });
        self.state.handle_report(self.now, usages.collect())
    }

    /// Takes the requests that are due.
    fn ask(&mut self) -> Vec<(Arc<str>, u64)> {
        self.asked.clear();
        let mut sequences = Vec::new();
        while let Some(batch) = self.state.poll_batch(self.now) {
            for (resource, _) in batch.releases {
                self.released.push(resource.scope.to_string());
            }
            for scope in batch.scopes {
                let request = scope.asks[0].1.clone();
                sequences.push((scope.scope.clone(), request.sequence));
                self.asked.insert(scope.scope.to_string(), request);
            }
        }
        sequences
    }

    /// Answers the requests that are due with `granted`, by scope.
    fn answer(&mut self, granted: impl Fn(&str) -> Granted) {
        let requested = self.ask();
        let answers: Vec<_> = requested
            .iter()
            .map(|(scope, sequence)| scope_answer(scope, *sequence, granted(scope)))
            .collect();
        let failed = self.state.handle_answers(self.now, &requested, &answers);
        assert_eq!(failed, 0);
    }

    /// Answers all that is due, also what comes of the answers.
    fn answer_all(&mut self, granted: impl Fn(&str) -> Granted) {
        for _ in 0..3 {
            self.answer(&granted);
        }
    }

    fn nudge(&mut self, scope: &str) {
        let resource = ResourceId::new(scope, Unit::Requests).unwrap();
        self.state.handle_nudge(self.now, &[resource]);
    }

    fn act(&mut self) -> Vec<(String, ActionKind)> {
        let mut actions = Vec::new();
        while self.state.has_actions(self.now) {
            actions.extend(self.state.poll_actions(self.now));
        }
        let named = |action: Action| (action.bucket["tenant"].clone(), action.kind);
        actions.into_iter().map(named).collect()
    }

    /// The next actions as tokens per second and seconds to live.
    fn tokens(&mut self) -> Vec<(String, u32, u64)> {
        let tokens = |(bucket, kind): (String, ActionKind)| match kind {
            ActionKind::Assign(Assignment {
                strategy:
                    Strategy::Tokens {
                        fill,
                        interval_s: 1,
                        ..
                    },
                time_to_live,
            }) => (bucket, fill, time_to_live.as_secs()),
            other => panic!("{other:?}"),
        };
        self.act().into_iter().map(tokens).collect()
    }

    fn asks_at(&self) -> Option<Duration> {
        let at = self.state.scope_timers.earliest()?;
        Some(at.saturating_since(self.now))
    }
}

fn name(tenant: &str) -> BucketName {
    BucketName::from([("tenant".to_owned(), tenant.to_owned())])
}

fn scope_answer(scope: &Arc<str>, sequence: u64, granted: Granted) -> ScopeAnswer {
    let lease = granted.capacity.map(|capacity| LeaseTerms {
        capacity,
        burst: Tokens::from_micros(capacity.as_micros().min(1_000_000 * MICRO)),
        duration: granted.lease,
        fingerprint: 1,
    });
    let answer = Answer {
        lease,
        refresh_interval: Duration::from_secs(1),
        safe: granted.safe.map(Capacity::from_whole),
        capacity: Capacity::from_whole(1000),
        period: None,
        burst: None,
        draw: None,
    };
    ScopeAnswer {
        scope: scope.clone(),
        canonical: granted.canonical.map_or_else(|| scope.clone(), Arc::from),
        limited: vec![Unit::Requests],
        usual: None,
        origin: Origin::alone(Epoch(1)),
        outcome: Ok(vec![UnitAnswer {
            unit: Unit::Requests,
            sequence,
            answer,
        }]),
    }
}

fn of(bucket: &str, tokens: u32, seconds: u64) -> (String, u32, u64) {
    (bucket.to_owned(), tokens, seconds)
}

#[test]
fn a_first_report_asks_at_once_and_the_answer_is_assigned() {
    let mut test = StreamContext::new();
    assert!(test.report(&[("acme", 0, 1)]).is_empty());
    assert_eq!(test.act(), [], "nothing is known yet");
    test.answer(|_| granted(40));
    let requested = &test.asked["tenant/acme"];
    assert_eq!(requested.demand.wants(), Capacity::from_whole(10));
    // It may be using what an earlier stream of it was assigned.
    assert_eq!(requested.claim, Claim::AtLeast);
    assert_eq!(test.tokens(), [of("acme", 40, 9)]);
    assert_eq!(test.act(), []);
    // From the next request on, it uses what it was assigned.
    test.wait(1000);
    test.answer(|_| granted(40));
    let requested = &test.asked["tenant/acme"];
    assert_eq!(
        (requested.claim, requested.has),
        (Claim::Lease, Capacity::from_whole(40))
    );
    assert_eq!(test.act(), [], "nothing has changed");
}

#[test]
fn each_report_is_answered_and_more_demand_is_told_at_once() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(10));
    test.act();
    for _ in 0..4 {
        test.wait(1000);
        test.answer(|_| granted(10));
        test.act();
    }
    test.wait(500);
    test.report(&[("acme", 4, 4499)]);
    assert_eq!(test.tokens(), [of("acme", 10, 8)], "as before, and renewed");
    assert_eq!(test.asks_at(), Some(Duration::ZERO));
    test.answer(|_| granted(800));
    let requested = &test.asked["tenant/acme"];
    assert_eq!(requested.demand.wants(), Capacity::from_whole(1000));
    assert_eq!(test.tokens(), [of("acme", 800, 9)]);
}

#[test]
fn an_assignment_is_renewed_before_it_ends_and_not_much_before() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(10));
    assert_eq!(test.tokens(), [of("acme", 10, 9)]);
    let mut renewed = None;
    for second in 1..=9 {
        test.wait(1000);
        test.answer(|_| granted(10));
        if test.tokens() == [of("acme", 10, 9)] {
            renewed.get_or_insert(second);
        }
    }
    assert_eq!(renewed, Some(7));
}

#[test]
fn an_assignment_never_outlives_its_lease() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(10));
    assert_eq!(test.tokens(), [of("acme", 10, 9)]);
    // The coordinator is away. What is assigned of the old lease ends with it.
    let expiry = test.now.saturating_add(LEASE);
    for _ in 0..12 {
        test.wait(900);
        test.report(&[("acme", 0, 9)]);
        for (_, kind) in test.act() {
            let ActionKind::Assign(assignment) = kind else {
                panic!("{kind:?}")
            };
            let ends = test.now.saturating_add(assignment.time_to_live + TRANSIT);
            assert!(ends <= expiry);
        }
    }
    assert_eq!(test.act(), []);
}

#[test]
fn a_lowered_share_is_acknowledged_when_it_was_sent_and_has_arrived() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    test.answer(|_| granted(100));
    test.act();
    test.wait(1000);
    test.answer(|_| granted(30));
    // Not sent yet: the proxy does not read.
    test.wait(2000);
    assert_eq!(test.ask(), []);
    assert_eq!(test.tokens(), [of("acme", 30, 7)]);
    assert_eq!(test.asks_at(), Some(TRANSIT));
    test.nudge("tenant/acme");
    assert_eq!(test.asks_at(), Some(TRANSIT), "also when it is nudged");
    test.wait(1000);
    test.answer(|_| granted(30));
    let requested = &test.asked["tenant/acme"];
    assert_eq!(requested.has, Capacity::from_whole(30));
    // More is asked for as soon as it may.
    test.nudge("tenant/acme");
    assert_eq!(test.asks_at(), Some(Duration::from_millis(100)));
}

#[test]
fn nothing_is_denied_and_no_limit_is_allowed() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1), ("beta", 0, 1)]);
    test.answer(|scope| match scope {
        "tenant/acme" => granted(0),
        _ => Granted {
            capacity: Some(Capacity::UNLIMITED),
            ..granted(0)
        },
    });
    let actions = test.act();
    let strategies: Vec<_> = actions
        .iter()
        .map(|(_, kind)| match kind {
            ActionKind::Assign(assignment) => assignment.strategy,
            ActionKind::Abandon => panic!("abandoned"),
        })
        .collect();
    assert_eq!(strategies, [Strategy::DenyAll, Strategy::AllowAll]);
}

#[test]
fn without_a_lease_a_proxy_is_told_its_safe_capacity_or_nothing() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1), ("beta", 0, 1)]);
    let learning = |scope: &str| match scope {
        "tenant/acme" => NO_LEASE,
        _ => Granted {
            safe: Some(7),
            ..NO_LEASE
        },
    };
    test.answer(learning);
    assert_eq!(test.tokens(), [of("beta", 7, 5)]);
    test.wait(1000);
    test.answer(|_| granted(50));
    assert_eq!(test.asked["tenant/beta"].claim, Claim::AtLeast);
    assert_eq!(test.tokens(), [of("acme", 50, 9), of("beta", 50, 9)]);
}

#[test]
fn a_lease_too_short_for_whole_seconds_lets_nothing_pass_without_a_limit() {
    let mut test = StreamContext::new();
    test.report(&[("acme", 0, 1)]);
    let short = |_: &str| Granted {
        lease: Duration::from_millis(1900),
        ..granted(50)
    };
    test.answer(short);
    let denied = Assignment {
        strategy: Strategy::DenyAll,
        time_to_live: Duration::from_secs(5),
    };
    assert_eq!(
        test.act(),
        [("acme".to_owned(), ActionKind::Assign(denied))]
    );
    // A valid assignment is not replaced by that, unless it is of more.
    test.wait(1000);
    test.answer(|_| granted(50));
    assert_eq!(test.tokens(), [of("acme", 50, 9)]);
    test.wait(1000);
    test.answer(short);
    assert_eq!(test.act(), []);
    test.wait(1000);
    test.answer(|scope| Granted {
        capacity: Some(Capacity::from_whole(49)),
        ..short(scope)
    });
    assert_eq!(
        test.act(),
        [("acme".to_owned(), ActionKind::Assign(denied))]
    );
}
