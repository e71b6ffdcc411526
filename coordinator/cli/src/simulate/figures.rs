//! Figures of a run, in words.

use tollgate_sim::figures::{Figures, LimitFigures};

use crate::print::or_dash;

// === free functions ===

/// Returns the figures with their names, as people read them.
pub(super) fn rows(figures: &Figures) -> Vec<(&'static str, String)> {
    let Figures {
        first_lease,
        longest_first_lease,
        settled,
        of_capacity,
        of_attainable,
        samples,
        over_capacity,
        worst,
        contended,
        fairness,
        time_to_fair,
        unfair_at_end,
        leases_lost,
        refreshes,
        nudges,
        messages,
        messages_lost,
        admitted,
        refused,
        scopes,
        violations,
        digest,
        // Others are of `ideal_rows` and of `longest_unfair`.
        ..
    } = figures;
    let reached = |time: &Option<f64>| time.map_or_else(|| "never".to_owned(), seconds);
    let leases = vec![
        ("time to the first lease", reached(first_lease)),
        (
            "longest wait of an Envoy for one",
            reached(longest_first_lease),
        ),
        ("time until 95 % was handed out", reached(settled)),
        (
            "handed out, of min(capacity, wants)",
            percent(*of_attainable),
        ),
        ("handed out, of the capacity", percent(*of_capacity)),
        (
            "samples over capacity",
            format!("{over_capacity} of {samples}"),
        ),
        ("fullest scope, of its capacity", percent(*worst)),
        (
            "fairness, 1 is max-min",
            or_dash(fairness.map(|index| format!("{index:.3} of {contended} divisions"))),
        ),
        ("mean time to fair", or_dash(time_to_fair.map(seconds))),
        ("longest time to fair", longest_unfair(figures)),
        ("unfair at the end", unfair_at_end.to_string()),
        ("leases lost", leases_lost.to_string()),
        ("requests admitted", admitted.to_string()),
        ("requests refused", refused.to_string()),
        ("refreshes", refreshes.to_string()),
        ("nudges", nudges.to_string()),
        ("messages", messages.to_string()),
        ("messages lost", messages_lost.to_string()),
        ("scopes", scopes.to_string()),
        ("laws broken", violations.to_string()),
        ("course (equal for equal seeds)", digest.clone()),
    ];
    ideal_rows(figures).into_iter().chain(leases).collect()
}

/// Returns what was admitted beside ideal buckets.
fn ideal_rows(figures: &Figures) -> [(&'static str, String); 6] {
    [
        (
            "admitted, of one ideal bucket",
            or_dash(figures.of_ideal.map(percent)),
        ),
        (
            "the same, of the worst scope",
            or_dash(figures.least_of_ideal.map(percent)),
        ),
        (
            "most admitted beyond burst + rate × t",
            tenths(figures.beyond_ideal),
        ),
        ("of that by safe capacity", tenths(figures.beyond_safe)),
        ("of that by nothing known", tenths(figures.beyond_rest)),
        (
            "most bytes beyond, known too late",
            tenths(figures.beyond_late),
        ),
    ]
}

/// Columns of the table of limits, without spaces so that they are names in CSV as well.
pub(super) const LIMIT_HEADER: &str = "scope|unit|capacity|asked|admitted|ideal|of_ideal|beyond|\
                                       beyond_safe|beyond_late|beyond_rest|longest_pause";

/// Returns the row of a limit for people, with its capacity as it was written.
pub(super) fn shown_limit_row(limit: &LimitFigures) -> Vec<String> {
    let mut row = limit_row(limit);
    if let (Some(capacity), Some(written)) = (row.get_mut(2), &limit.written) {
        capacity.clone_from(written);
    }
    row
}

/// Returns the row of a limit, with its capacity per second.
pub(super) fn limit_row(limit: &LimitFigures) -> Vec<String> {
    let LimitFigures {
        scope,
        unit,
        capacity,
        written: _,
        asked,
        admitted,
        ideal,
        of_ideal,
        beyond,
        beyond_safe,
        beyond_late,
        beyond_rest,
        longest_pause,
    } = limit;
    let named = [scope.clone(), (*unit).to_owned(), format!("{capacity:.4}")];
    let counts = [asked, admitted, ideal].map(u64::to_string);
    let part = or_dash(of_ideal.map(|part| format!("{part:.4}")));
    let beyond = [beyond, beyond_safe, beyond_late, beyond_rest].map(|beyond| tenths(*beyond));
    let row = named.into_iter().chain(counts).chain([part]);
    let row = row.chain(beyond);
    row.chain([format!("{longest_pause:.3}")]).collect()
}

/// Returns a number of tokens or bytes.
pub(super) fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

pub(super) fn seconds(time: f64) -> String {
    format!("{time:.3} s")
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

/// Returns the longest time for which a division was unfair, in words.
pub(super) fn longest_unfair(figures: &Figures) -> String {
    let more = if figures.unfair_at_end > 0 {
        "at least "
    } else {
        ""
    };
    let longest = figures.longest_time_to_fair;
    or_dash(longest.map(|longest| format!("{more}{}", seconds(longest))))
}
