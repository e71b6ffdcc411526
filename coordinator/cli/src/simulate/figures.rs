//! Figures of a run, in words.

use tollgate_sim::figures::Figures;

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
        most_admitted,
        leases_lost,
        refreshes,
        messages,
        messages_lost,
        admitted,
        refused,
        scopes,
        violations,
        digest,
    } = figures;
    let seconds =
        |time: &Option<f64>| time.map_or_else(|| "never".to_owned(), |time| format!("{time:.3} s"));
    let percent = |part: &f64| format!("{:.2} %", part * 100.0);
    vec![
        ("time to the first lease", seconds(first_lease)),
        (
            "longest wait of an Envoy for one",
            seconds(longest_first_lease),
        ),
        ("time until 95 % was handed out", seconds(settled)),
        (
            "handed out, of min(capacity, wants)",
            percent(of_attainable),
        ),
        ("handed out, of the capacity", percent(of_capacity)),
        (
            "samples over capacity",
            format!("{over_capacity} of {samples}"),
        ),
        ("fullest scope, of its capacity", percent(worst)),
        (
            "most admitted in 10 s, of a capacity",
            percent(most_admitted),
        ),
        ("leases lost", leases_lost.to_string()),
        ("requests admitted", admitted.to_string()),
        ("requests refused", refused.to_string()),
        ("refreshes", refreshes.to_string()),
        ("messages", messages.to_string()),
        ("messages lost", messages_lost.to_string()),
        ("scopes", scopes.to_string()),
        ("laws broken", violations.to_string()),
        ("course (equal for equal seeds)", digest.clone()),
    ]
}
