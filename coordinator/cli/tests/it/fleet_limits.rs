//! Limits of simulated fleets beside one limit that all Envoys share without delay.
//!
//! Each line is of one scope of a scenario in `tests/scenarios`: `fleet-limits.yaml`, `fleet-pods.yaml`,
//! `fleet-far.yaml`, `fleet-crash.yaml`, `fleet-failover.yaml`, `fleet-cut.yaml`, `fleet-overload.yaml`, `fleet-bytes.yaml`, `fleet-spikes.yaml`, `fleet-quotas.yaml`, `fleet-costs.yaml`,
//! `fleet-groups.yaml`. It says what holds today; the aim is 99 % in each line.
//! `cargo test -p tollgate-cli fleet_limits -- --nocapture` prints the figures of `docs/benchmarks.md`.

use serde_json::Value;

use crate::simulate::limits_of;

/// Expectation of one scope.
struct Line {
    scope: &'static str,
    /// Limit and demand, for people.
    what: &'static str,
    /// Requests that real Envoys admitted, beside an ideal one, when balances were still scaled.
    real: &'static str,
    /// Least part, in percent, of what the ideal limit admits.
    least: f64,
    /// Most that passes beyond without an explanation.
    beyond: f64,
}

const fn line(
    scope: &'static str,
    what: &'static str,
    real: &'static str,
    (least, beyond): (f64, f64),
) -> Line {
    Line {
        scope,
        what,
        real,
        least,
        beyond,
    }
}

/// Least part, and most beyond, of each of the scopes of many keys.
const KEYS: (f64, f64) = (0.9, 0.0);

#[rustfmt::skip]
const LIMITS: &[Line] = &[
    line("tenant/burst-10-1", "10/min, 13 within a second, 1 Envoy", "10 of 10", (99.0, 0.0)),
    line("tenant/burst-10-2", "the same, 2 Envoys", "5 of 10", (99.0, 0.0)),
    line("tenant/burst-10-3", "the same, 3 Envoys", "4 of 10", (99.0, 0.0)),
    line("tenant/burst-10-5", "the same, 5 Envoys", "3 of 10", (99.0, 0.0)),
    line("tenant/burst-100-1", "100/min, 130 within a second, 1 Envoy", "101 of 101", (99.0, 0.0)),
    line("tenant/burst-100-2", "the same, 2 Envoys", "55 of 101", (99.0, 0.0)),
    line("tenant/burst-100-3", "the same, 3 Envoys", "37 of 101", (99.0, 0.0)),
    line("tenant/burst-100-5", "the same, 5 Envoys", "23 of 101", (99.0, 0.0)),
    line("tenant/ten-0.5", "10/min, half of it, 2 Envoys", "4 of 20", (99.0, 0.0)),
    line("tenant/ten-1", "10/min, just so much", "3 of 40", (99.0, 0.0)),
    line("tenant/ten-3", "10/min, three times as much", "3 of 49", (99.0, 0.0)),
    line("tenant/thirty-in-turn", "30/min, half of it, 2 Envoys in turn", "4 of 60", (99.0, 0.0)),
    line("tenant/thirty-random", "30/min, half of it, 2 Envoys at random", "15 of 60", (99.0, 0.0)),
    line("tenant/sixty-in-turn", "60/min, 0.8 of it, 3 Envoys in turn", "3 of 192", (99.0, 0.0)),
    line("tenant/sixty-random", "60/min, 0.8 of it, 3 Envoys at random", "36 of 197", (99.0, 0.0)),
    line("tenant/three-hundred", "300/min, 0.8 of it, 3 Envoys", "759 of 966", (99.0, 0.0)),
    line("tenant/second-5", "5/s, 0.8 of it, 5 Envoys", "211 of 378", (99.0, 0.0)),
    line("tenant/second-10", "10/s, 0.8 of it, 5 Envoys", "526 of 805", (99.0, 0.0)),
    line("tenant/second-20", "20/s, 0.8 of it, 5 Envoys", "1361 of 1630", (99.0, 0.0)),
    line("tenant/second-50", "50/s, 0.8 of it, 5 Envoys", "3854 of 4045", (99.0, 0.0)),
    line("tenant/regular", "10/min, 0.8 of it evenly, 1 Envoy", "7 of 13", (99.0, 0.0)),
    line("tenant/poisson", "10/min, 0.8 of it by chance, 1 Envoy", "12 of 20", (99.0, 0.0)),
    line("tenant/overload", "5/s, three times as much, 5 Envoys", "500 of 604", (99.0, 0.0)),
    line("tenant/once-a-second", "100/min, one a second, 40 Envoys", "21 of 60", (99.0, 0.0)),
    line("tenant/thousand", "1000/min, 40/s, 40 Envoys", "13 of 16.7/s", (99.0, 0.0)),
    line("tenant/hourly", "100/h, ten times as much, 2 Envoys", "3 of 66", (99.0, 0.0)),
    line("tenant/waits", "10/min, callers wait, 1 Envoy", "10 of 27", (99.0, 0.0)),
    line("tenant/waits-elsewhere", "60/min, callers wait and go elsewhere", "55 of 81", (99.0, 0.0)),
    line("tenant/half-ten", "10/s, half of it, 40 Envoys", "75 % of all", (99.0, 0.0)),
    line("tenant/half-ten-burst", "10/s, burst 100, half of it", "28 % of all", (99.0, 0.0)),
    line("tenant/half-hundred", "100/s, half of it", "72 % of all", (99.0, 0.0)),
    line("tenant/half-two", "2/s, half of it", "-", (99.0, 0.0)),
    line("tenant/half-forty", "40/s, half of it", "-", (99.0, 0.0)),
    line("tenant/half-four-hundred", "400/s, half of it", "-", (99.0, 0.0)),
    line("tenant/day", "1M a day, 1000 each, 4 Envoys", "-", (99.0, 0.0)),
    line("tenant/bytes", "1 MB/s, responses of 50 kB at 0.8, 5 Envoys", "864 of 955", (99.0, 0.0)),
    line("tenant/flight-20-of-40", "20 in flight, 5 wanted, 40 Envoys", "98 % of all", (99.0, 0.0)),
    line("tenant/flight-3-busy", "3 in flight, 1.5 wanted, 5 Envoys", "99 of 190", (99.0, 0.0)),
    line("tenant/flight-3-idle", "3 in flight, 0.5 wanted, 5 Envoys", "44 of 79", (99.0, 0.0)),
    line("tenant/flight-20-of-5", "20 in flight, 8 wanted, 5 Envoys", "1151 of 1249", (99.0, 0.0)),
];

#[rustfmt::skip]
const PODS: &[Line] = &[
    line("tenant/killed", "10/h, 4 used, pod killed, 12 at once", "4 of 10", (99.0, 0.0)),
    line("tenant/killed-later", "the same, 12 after 15 s", "14 of 10", (99.0, 0.0)),
    line("tenant/drained", "10/h, 4 used, pod drained, 12 at once", "-", (99.0, 0.0)),
    line("tenant/raised", "10/h used up, 20/h, 12 more", "10 of 20", (99.0, 0.0)),
    line("tenant/dip", "burst 100, 1 and 100 again, 60 of 99", "2 of 61", (99.0, 0.0)),
    line("tenant/caller", "10/h, a caller at three Envoys, 12 each", "30 of 10", (99.0, 0.0)),
    line("tenant/scaled", "5/s, 0.8 of it, 2 to 6 Envoys and back", "-", (97.0, 0.0)),
    line("tenant/rolled", "60/min, 0.8 of it, 3 Envoys replaced", "-", (99.0, 0.0)),
];

#[rustfmt::skip]
const FAR: &[Line] = &[
    line("tenant/burst-10-3", "10/min, 13 within a second, 3 Envoys", "-", (99.0, 0.0)),
    line("tenant/burst-100-1", "100/min, 130 within a second, 1 Envoy", "-", (99.0, 0.0)),
    line("tenant/burst-100-3", "the same, 3 Envoys", "-", (99.0, 0.0)),
    line("tenant/ten", "10/min, 0.8 of it, 3 Envoys", "-", (99.0, 0.0)),
    line("tenant/sixty", "60/min, 0.8 of it, 3 Envoys", "-", (99.0, 0.0)),
    line("tenant/second-5", "5/s, 0.8 of it, 5 Envoys", "-", (96.0, 0.0)),
    line("tenant/second-50", "50/s, 0.8 of it, 5 Envoys", "-", (99.0, 0.0)),
    line("tenant/thousand", "1000/min, 40/s, 40 Envoys", "-", (99.0, 0.0)),
    line("tenant/waits-elsewhere", "60/min, callers wait and go elsewhere", "-", (99.0, 0.0)),
    line("tenant/flight-3", "3 in flight, 1.5 wanted, 5 Envoys", "-", (95.0, 0.0)),
];

#[rustfmt::skip]
const GROUPS: &[Line] = &[
    line("tenant/own-low", "10/min of a member of a large group, 5 Envoys", "-", (99.0, 0.0)),
    line("tenant/own-half", "5/s of a member, 0.8 of it, 40 Envoys", "-", (99.0, 0.0)),
    line("group/ten", "10/min, two members want 0.8 of it, 2 Envoys", "-", (99.0, 0.0)),
    line("group/ten-busy", "10/min, three times as much, 5 Envoys", "-", (99.0, 0.0)),
    line("group/hundred", "100/min, 0.8 of it, 40 Envoys", "-", (99.0, 0.0)),
    line("group/second", "5/s, three members want 0.8 of it, 5 Envoys", "-", (99.0, 0.0)),
    line("group/second-busy", "5/s, three times as much, 5 Envoys", "-", (99.0, 0.0)),
    line("group/fifty", "50/s, 0.8 of it, 5 Envoys", "-", (99.0, 0.0)),
    line("group/hundred-half", "100/s, half of it, 40 Envoys", "-", (99.0, 0.0)),
    line("group/hundred-busy", "100/s, three times as much, 40 Envoys", "-", (99.0, 0.0)),
    line("group/large", "10k/s, with small limits of members", "-", (99.0, 0.0)),
];

/// Each region has a part of a limit: of two buckets of half the burst one overflows while the other is empty.
#[rustfmt::skip]
const TREE: &[Line] = &[
    line("tenant/ten", "10/min, 0.8 of it, two regions of 5 Envoys", "-", (80.0, 0.0)),
    line("tenant/ten-busy", "10/min, three times as much", "-", (95.0, 0.0)),
    line("tenant/hundred", "100/min, 0.8 of it", "-", (98.0, 0.0)),
    line("tenant/five", "5/s, 0.8 of it", "-", (75.0, 0.0)),
    line("tenant/five-busy", "5/s, three times as much", "-", (97.0, 0.5)),
    line("tenant/fifty", "50/s, 0.8 of it", "-", (99.0, 0.0)),
    line("tenant/ten-one", "10/min, three times as much, one region", "-", (97.0, 0.0)),
    line("tenant/five-one", "5/s, 0.8 of it, one region", "-", (96.0, 0.0)),
    line("tenant/thousand", "1000/s, 0.8 of it", "-", (99.0, 0.0)),
    line("tenant/flight", "20 in flight, 8 wanted", "-", (93.0, 0.0)),
];

#[rustfmt::skip]
const CRASH: &[Line] = &[
    line("tenant/four", "10/h, 4 used, coordinator killed, 12 more", "-", (99.0, 0.0)),
    line("tenant/all", "10/h, 1/s, killed three times", "-", (99.0, 0.0)),
    line("tenant/large", "10 000/h, half of it used, killed, twice as much", "-", (95.0, 0.0)),
    line("tenant/minute", "60/min, 0.8 of it, killed three times", "-", (70.0, 0.0)),
];

#[rustfmt::skip]
const SPIKES: &[Line] = &[
    line("tenant/new-20", "20/s, 19 of a new tenant within 100 ms, 1 Envoy", "-", (99.0, 0.0)),
    line("tenant/new-100", "100/s, 94", "60 of 94", (99.0, 0.0)),
    line("tenant/new-2000", "2k/s, 1900", "-", (99.0, 0.0)),
    line("tenant/new-20-5", "20/s, 19, 5 Envoys", "-", (99.0, 0.0)),
    line("tenant/new-100-5", "100/s, 94, 5 Envoys", "-", (99.0, 0.0)),
    line("tenant/new-10000-5", "10k/s, 9400, 5 Envoys", "-", (99.0, 0.0)),
    line("tenant/idle-20", "20/s, 1/s over 5 Envoys, then 15 within 100 ms at one", "-", (99.0, 0.0)),
    line("tenant/idle-100", "100/s, 4/s, then 88", "-", (99.0, 0.0)),
    line("tenant/idle-500", "500/s, 4/s, then 450", "-", (99.0, 0.0)),
    line("tenant/idle-2000", "2k/s, 4/s, then 1900", "-", (20.0, 0.0)),
    line("tenant/tenth-100", "100/s, 10/s, then 88", "-", (99.0, 0.0)),
    line("tenant/third-100", "100/s, 33/s, then 88", "-", (96.0, 0.0)),
    line("tenant/ebbed-100", "100/s, 60/s, 4/s, then 90", "-", (99.0, 0.0)),
    line("tenant/joined", "500/s, 150/s, 2 to 6 Envoys", "-", (99.9, 0.0)),
    line("tenant/joined-in-overload", "200/s, 600/s, 2 to 6 Envoys", "-", (98.0, 0.0)),
];

/// A coordinator is away for five seconds and learns for ten; half of each limit is wanted. Where nothing passes
/// without its leave, there is no more than a part of the limit for each Envoy.
#[rustfmt::skip]
const FAILOVER: &[Line] = &[
    line("tenant/hundred-hour", "100/h", "-", (99.0, 0.0)),
    line("tenant/hundred-minute", "100/min", "-", (99.0, 0.0)),
    line("tenant/one", "1/s, burst 10", "-", (99.0, 0.0)),
    line("tenant/five", "5/s", "-", (98.0, 0.0)),
    line("tenant/fifteen", "15/s", "-", (99.0, 0.0)),
    line("tenant/hundred", "100/s, 15/s of it", "-", (99.0, 0.0)),
    line("tenant/busy", "100/s, 60/s of it", "-", (99.0, 0.0)),
    line("tenant/thousand", "1000/s", "-", (99.0, 0.0)),
    line("strict/five", "5/s, no safe capacity", "-", (85.0, 0.0)),
    line("strict/fifteen", "15/s, the same", "-", (92.0, 0.0)),
    line("strict/hundred", "100/s, 15/s of it, the same", "-", (97.0, 0.0)),
    line("strict/busy", "100/s, 60/s of it, the same", "-", (99.0, 0.0)),
];

/// Many Envoys, of which each is asked now and then.
#[rustfmt::skip]
const OVERLOAD: &[Line] = &[
    line("two/30", "1/s, 30 times as much, 2 Envoys", "-", (93.0, 0.0)),
    line("one/1", "1/s, just so much, 40 Envoys", "-", (97.0, 0.0)),
    line("one/3", "1/s, three times as much", "-", (97.0, 0.0)),
    line("one/30", "1/s, 30 times as much", "-", (94.0, 0.0)),
    line("one/30-sticky", "the same through one of 40", "-", (97.0, 0.0)),
    line("five/1", "5/s, just so much, 40 Envoys", "-", (98.0, 0.0)),
    line("five/3", "5/s, three times as much, random", "-", (97.0, 0.0)),
    line("five/3-in-turn", "the same in turn", "-", (98.0, 0.0)),
    line("five/30", "5/s, 30 times as much, random", "-", (99.0, 0.0)),
    line("five/30-in-turn", "the same in turn", "-", (99.0, 0.0)),
    line("ten-minute/30", "10/min, 30 times as much, 40 Envoys", "-", (99.0, 0.0)),
    line("hundred/1-in-turn", "100/s, just so much, 100 Envoys in turn", "-", (97.0, 0.0)),
    line("hundred/3-in-turn", "100/s, three times as much", "-", (99.0, 0.0)),
];

/// Bytes, of which nobody knows how many a request will bring: of what is in flight when the last one goes, some
/// come too late. And requests that cost many tokens, of which few a second are many tokens.
#[rustfmt::skip]
const BYTES: &[Line] = &[
    line("mega/half", "1 MB/s, half of it, 50 kB each, 2 Envoys", "-", (99.0, 0.0)),
    line("mega/1", "just so much, 40 Envoys", "-", (98.0, 100e3)),
    line("mega/3-in-turn", "three times as much", "-", (99.0, 2e6)),
    line("mega/30", "30 times as much, 5 Envoys", "-", (98.0, 500e3)),
    line("mega/parts", "0.8 of it, 1 kB each, 40 Envoys", "-", (99.0, 0.0)),
    line("mega/mixed", "0.8 of it, 10 and 90 kB each, 40 Envoys", "-", (98.0, 0.0)),
    line("mega/mixed-3", "three times as much, 5 Envoys", "-", (90.0, 500e3)),
    line("small/0.8", "10 kB/s, 0.8 of it, 1 kB each, 5 Envoys", "-", (98.0, 2e3)),
    line("small/30-in-turn", "30 times as much, 40 Envoys", "-", (98.0, 20e3)),
    line("few/3", "100 kB/s, three times as much, 50 kB each, 40 Envoys", "-", (96.0, 200e3)),
    line("few/30", "30 times as much", "-", (96.0, 500e3)),
    line("few/long", "three times as much, 2 s each, 5 Envoys", "-", (98.0, 500e3)),
    line("many/1", "20 MB/s, just so much, 200 kB each, 40 Envoys", "-", (99.0, 0.0)),
    line("hour/0.8", "1M an hour, 0.8 of it, 1000 each, 40 Envoys", "-", (99.0, 0.0)),
    line("hour/half", "30 of 20 within a second, 2 Envoys", "-", (99.0, 0.0)),
    line("hour/30", "30 times as much, 40 Envoys", "-", (99.0, 0.0)),
];

/// Plays a scenario, prints a table and compares it with `lines`.
fn compare(name: &str, lines: &[Line]) {
    let limits = limits_of(name);
    let mut missed = Vec::new();
    eprintln!(
        "| scope | limit and demand | asked | admitted | ideal | part | beyond | unexplained | longest pause | real Envoys |"
    );
    eprintln!("|---|---|---|---|---|---|---|---|---|---|");
    for line in lines {
        let found = limits.iter().find(|limit| limit["scope"] == line.scope);
        let limit = found.unwrap_or_else(|| panic!("{} is not in {name}", line.scope));
        let number = |field: &str| limit[field].as_f64().unwrap_or(0.0);
        let part = 100.0 * number("of_ideal");
        eprintln!(
            "| {} | {} | {} | {} | {} | {part:.1} % | {:.1} | {:.1} | {:.1} s | {} |",
            line.scope.trim_start_matches("tenant/"),
            line.what,
            number("asked"),
            number("admitted"),
            number("ideal"),
            number("beyond"),
            number("beyond_rest"),
            number("longest_pause"),
            line.real,
        );
        if part < line.least || number("beyond_rest") > line.beyond {
            missed.push(format!("{}: {limit}", line.scope));
        }
    }
    let named = |limit: &&Value| lines.iter().any(|line| limit["scope"] == line.scope);
    let others = limits.iter().filter(|limit| !named(limit));
    for other in others {
        let part = other["of_ideal"].as_f64().unwrap_or(1.0);
        let beyond = other["beyond_rest"].as_f64().unwrap_or(0.0);
        eprintln!("{}: {part:.3}, {beyond:.1}", other["scope"]);
        if part < KEYS.0 || beyond > KEYS.1 {
            missed.push(other.to_string());
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn limits_of_a_fleet_are_used_as_far_as_today() {
    compare("fleet-limits", LIMITS);
}

#[test]
fn limits_outlive_pods_as_far_as_today() {
    compare("fleet-pods", PODS);
}

#[test]
fn limits_outlive_their_coordinator() {
    compare("fleet-crash", CRASH);
}

#[test]
fn limits_outlive_a_time_without_a_coordinator() {
    compare("fleet-failover", FAILOVER);
}

#[test]
fn bytes_and_dear_requests_are_counted_in_one_bucket() {
    compare("fleet-bytes", BYTES);
}

#[test]
fn a_groups_members_draw_of_one_bucket() {
    compare("fleet-groups", GROUPS);
}

#[test]
fn regions_share_low_limits_of_their_root() {
    compare("fleet-tree", TREE);
}

#[test]
fn small_bursts_of_many_envoys_are_used_under_overload() {
    compare("fleet-overload", OVERLOAD);
}

/// Standby capacity and credit may let pass beyond a limit: what is earned before it is known that an Envoy is cut
/// off, and a token for each that is.
#[test]
fn little_passes_beyond_a_limit_where_envoys_are_cut_off() {
    for limit in limits_of("fleet-cut") {
        let beyond = limit["beyond"].as_f64().expect("a figure");
        let rate = limit["capacity"].as_f64().expect("a figure");
        assert!(beyond <= 2.0 * rate + 5.0, "{limit}");
        assert!(limit["of_ideal"].as_f64() > Some(0.9), "{limit}");
    }
}

#[rustfmt::skip]
const QUOTAS: &[Line] = &[
    line("minute/half", "300 a minute, half of it, 3 Envoys", "-", (99.0, 0.0)),
    line("minute/four-times", "300 a minute, four times as much", "-", (99.0, 0.0)),
    line("minute/forty", "the same, 40 Envoys", "-", (99.0, 0.0)),
    line("minute/burst", "300 a minute, 400 within a second", "-", (99.0, 0.0)),
    line("rolling/twice", "300 in any minute, twice as much", "-", (97.0, 0.0)),
    line("rate/over", "10/s and 1000 an hour, 15/s", "-", (99.0, 0.0)),
    line("hour/over", "20k an hour, 100/s", "-", (99.0, 0.0)),
    line("hour/killed", "the same, 4 Envoys that are killed", "-", (99.0, 0.0)),
];

#[rustfmt::skip]
const COSTS: &[Line] = &[
    line("rate/two", "100k/min of log-normal costs, six times as much, estimates of 700, 2 Envoys", "-", (99.0, 0.0)),
    // Envoys may hold an estimate that they have drawn before late costs were known.
    line("rate/forty", "the same, 40 Envoys", "-", (99.0, 700.0)),
    line("rate/generous", "the same, estimates of the most, 2 Envoys", "-", (99.0, 0.0)),
    line("rate/half", "the same, half of the limit", "-", (99.0, 0.0)),
    line("small/two", "10k/min, five times as much", "-", (99.0, 0.0)),
    line("hour/two", "a million an hour, twice as much", "-", (99.0, 0.0)),
    line("hour/forty", "the same, a minute each, estimates of the most, 40 Envoys", "-", (97.0, 0.0)),
    line("minute/two", "100k a minute, twice as much, 2 Envoys", "-", (96.0, 0.0)),
];

#[test]
fn limits_hold_far_from_the_coordinator() {
    compare("fleet-far", FAR);
}

#[test]
fn quotas_hold_through_kills() {
    compare("fleet-quotas", QUOTAS);
}

#[test]
fn costs_that_ends_tell_hold_limits_and_quotas() {
    compare("fleet-costs", COSTS);
}

#[test]
fn a_burst_passes_wherever_it_comes() {
    compare("fleet-spikes", SPIKES);
}
