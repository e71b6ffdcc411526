//! Vectors of pulsar's AsyncTokenBucket, version 3, that do not rest on a defect.

use super::*;

/// One step of a vector.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes, in milliseconds.
    Pass(u64),
    /// So many times: time passes, and somebody reads the balance.
    Poll(u64, u64),
    /// Work that is charged whatever the balance.
    Charge(u64),
    /// So many times: a charge of tokens, then time passes.
    Cycle(u64, u64, u64),
    /// The balance in whole tokens, as pulsar reads it.
    Is(i64),
    /// In so many milliseconds there will be so many tokens.
    Pause(u64, u64),
}
use Step::{Charge, Cycle, Is, Pass, Pause, Poll};

/// Name of a vector, rate, burst, tokens at the start, steps.
type Vector = (&'static str, u64, u64, u64, &'static [Step]);

/// Pulsar consumes without asking ([`TokenBucket::charge`]) and pauses until its target: the tokens of
/// one resolution of 16 ms, at least one. The target is written out as the second number of `Pause`.
const VECTORS: [Vector; 14] = [
    (
        "earns up to the burst",
        10,
        100,
        0,
        &[
            Pass(5000),
            Is(50),
            Pass(1000),
            Is(60),
            Pass(4000),
            Is(100),
            Pass(5000),
            Is(100),
            Charge(100),
            Is(0),
            Pass(1000),
            Is(10),
        ],
    ),
    (
        // 16 ms at 10/s are 0.16 tokens, so the target is one token: 51 tokens away.
        "a debt is waited for",
        10,
        100,
        0,
        &[Pass(5000), Charge(100), Is(-50), Pause(5100, 1)],
    ),
    ("one token", 10, 100, 0, &[Pass(100), Is(1)]),
    (
        "read every millisecond",
        10,
        100,
        0,
        &[
            Poll(150, 1),
            Is(1),
            Pass(150),
            Is(3),
            Pass(1),
            Is(3),
            Pass(99),
            Is(4),
        ],
    ),
    (
        // Version 0 still says 0 after the second, for it moves on a grid of 16 ms.
        "read every millisecond, at one token per second",
        1,
        100,
        0,
        &[
            Poll(150, 1),
            Is(0),
            Pass(150),
            Is(0),
            Pass(699),
            Is(0),
            Pass(1),
            Is(1),
            Pass(1000),
            Is(2),
        ],
    ),
    (
        // Version 0 ends at -310: it caps before it subtracts.
        "debts are paid before the burst caps",
        10,
        100,
        0,
        &[Cycle(10_000, 500, 50_000), Pass(9000), Is(90)],
    ),
    (
        "a constant rate at its limit neither gains nor loses",
        1000,
        100_000,
        500,
        &[Cycle(100_000, 1, 1), Is(500)],
    ),
    (
        // Pulsar says 100, 200, 600, 1100 and 10100 ms for balances of 0, -1, -5, -10 and -100. The target is
        // one token at this rate, so the numbers are ours as well.
        "pauses at 10/s",
        10,
        100,
        0,
        &[
            Pause(100, 1),
            Charge(1),
            Pause(200, 1),
            Charge(4),
            Pause(600, 1),
            Charge(5),
            Pause(1100, 1),
            Charge(90),
            Pause(10_100, 1),
        ],
    ),
    (
        // Pulsar says 15, 16, 17, 516 and 1016 ms for balances of 1, 0, -1, -500 and -1000. 16 ms at 1000/s
        // are 16 tokens: its pause ends when 16 are there, not when one is.
        "pauses at 1000/s",
        1000,
        1000,
        1,
        &[
            Pause(15, 16),
            Charge(1),
            Pause(16, 16),
            Charge(1),
            Pause(17, 16),
            Charge(499),
            Pause(516, 16),
            Charge(500),
            Pause(1016, 16),
        ],
    ),
    (
        // 2000 requests in one moment, all of them charged, as version 3 does with those it refuses. Its target
        // is 8 tokens (16 ms at 500/s), so 1508 tokens away.
        "2000 accepted at once",
        500,
        500,
        500,
        &[Cycle(2000, 1, 0), Is(-1500), Pause(3016, 8)],
    ),
    // Half empty and idle for long. Pulsar multiplies in 64 bits: up to -6 396 744 073 tokens, or no refill.
    (
        "100 MB/s idle for 93 s",
        100_000_000,
        100_000_000,
        50_000_000,
        &[Pass(93_000), Is(100_000_000)],
    ),
    (
        "100 MB/s idle for 120 s",
        100_000_000,
        100_000_000,
        50_000_000,
        &[Pass(120_000), Is(100_000_000)],
    ),
    (
        "10 MB/s idle for 923 s",
        10_000_000,
        10_000_000,
        5_000_000,
        &[Pass(923_000), Is(10_000_000)],
    ),
    (
        "10 GB/s idle for 1 s",
        10_000_000_000,
        10_000_000_000,
        5_000_000_000,
        &[Pass(1000), Is(10_000_000_000)],
    ),
];

/// Runs one step; returns the time after it.
fn run(bucket: &mut TokenBucket, mut now: Instant, step: Step, name: &str) -> Instant {
    match step {
        Pass(ms) => now = after(now, ms),
        Poll(times, ms) => {
            for _ in 0..times {
                now = after(now, ms);
                bucket.charge(now, Tokens::ZERO);
            }
        }
        Charge(tokens) => bucket.charge(now, whole(tokens)),
        Cycle(times, tokens, ms) => {
            for _ in 0..times {
                bucket.charge(now, whole(tokens));
                now = after(now, ms);
            }
        }
        Is(tokens) => {
            let micro = i64::try_from(MICRO).unwrap();
            assert_eq!(bucket.balance(now).div_euclid(micro), tokens, "{name}");
        }
        Pause(ms, target) => {
            let pause = bucket.time_until(now, whole(target)).unwrap();
            assert_eq!(pause, Duration::from_millis(ms), "{name}");
        }
    }
    now
}

#[test]
fn async_token_bucket_vectors() {
    for (name, rate, burst, tokens, steps) in VECTORS {
        let mut bucket = bucket_of(rate, burst);
        bucket.give_back(START, whole(tokens));
        let mut now = START;
        for step in steps {
            now = run(&mut bucket, now, *step, name);
        }
    }
}

#[test]
fn async_token_bucket_vector_with_a_longer_pause_now_and_then() {
    let mut bucket = bucket_of(10, 100);
    let mut now = START;
    for i in 1..=100 {
        bucket.charge(now, whole(600));
        now = after(now, 50_000);
        if i % 10 == 0 {
            now = after(now, 100_000);
        }
    }
    assert_eq!(bucket.balance(after(now, 9000)), 90_000_000);
}
