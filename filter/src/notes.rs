//! Values that the filter leaves in a stream's filter state, for the access log and the response.
//!
//! A chain may have several of these filters, which write into the same filter state. The obvious way,
//! to replace what is there, would show only the last one's limits.

/// Values by name.
pub type Notes = Vec<(&'static str, String)>;

/// The reason of a refusal.
pub(crate) const REASON: &str = "tollgate.reason";
/// The time after which a refused request would pass.
pub(crate) const PAUSE_MS: &str = "tollgate.pause_ms";
/// The time that a request has waited in all filters.
pub(crate) const WAITED_MS: &str = "tollgate.waited_ms";
/// Refusals in shadow mode, those of an earlier filter first.
pub(crate) const SHADOW: &str = "tollgate.shadow";
/// Refusals that the upstream is told of instead of the client, those of an earlier filter first.
pub const MARK: &str = "tollgate.mark";
/// The request header that tells the upstream of them.
pub const MARK_HEADER: &str = "tollgate-mark";
/// The item of `RateLimit` for each limit.
pub(crate) const RATELIMIT: &str = "tollgate.ratelimit";
/// The item of `RateLimit-Policy` for each limit.
pub(crate) const RATELIMIT_POLICY: &str = "tollgate.ratelimit_policy";
/// The limit with the least left, what is left of it, and when it is whole again.
pub(crate) const TIGHTEST: [&str; 3] = [
    "tollgate.x_ratelimit_limit",
    "tollgate.x_ratelimit_remaining",
    "tollgate.x_ratelimit_reset",
];

const LISTS: [&str; 4] = [SHADOW, MARK, RATELIMIT, RATELIMIT_POLICY];

/// Returns the name that Envoy's filter state has for a note.
pub fn state_name(name: &str) -> String {
    format!("wasm.{name}")
}

/// Joins `notes` with those that an `earlier` filter of the chain has left: lists get longer, waits are
/// added up, and the tightest limit counts. An empty note takes an earlier one away.
pub fn joined(mut notes: Notes, earlier: impl Fn(&str) -> Option<String>) -> Notes {
    let earlier = |name: &str| earlier(name).filter(|value| !value.is_empty());
    if notes.iter().any(|(name, _)| TIGHTEST.contains(name)) {
        join_tightest(&mut notes, &earlier);
        notes.retain(|(name, value)| !value.is_empty() || earlier(name).is_some());
    }
    for (name, value) in &mut notes {
        let before = match *name {
            WAITED_MS => earlier(name),
            list if LISTS.contains(&list) => earlier(list),
            _ => None,
        };
        if let Some(before) = before {
            *value = match *name {
                WAITED_MS => sum(&before, value),
                _ => format!("{before}, {value}"),
            };
        }
    }
    notes
}

// === free functions ===

/// Leaves either all the fields of the tightest limit to an earlier filter, or none.
fn join_tightest(notes: &mut Notes, earlier: &impl Fn(&str) -> Option<String>) {
    let [_, remaining, _] = TIGHTEST;
    let own = notes.iter().find(|(name, _)| *name == remaining);
    let own = own.and_then(|(_, left)| number(left));
    let before = earlier(remaining).and_then(|left| number(&left));
    let is_looser = match (own, before) {
        (Some(own), Some(before)) => before <= own,
        // It takes away what is not there.
        (None, before) => before.is_none(),
        (Some(_), None) => false,
    };
    if is_looser {
        notes.retain(|(name, _)| !TIGHTEST.contains(name));
    }
}

fn sum(one: &str, other: &str) -> String {
    let sum = number(one).unwrap_or_default();
    let sum = sum.saturating_add(number(other).unwrap_or_default());
    sum.to_string()
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: [(&str, &str); 7] = [
        (WAITED_MS, "20"),
        (SHADOW, "address/requests"),
        (RATELIMIT, r#""address";r=4;t=1"#),
        (RATELIMIT_POLICY, r#""address";q=5;w=1"#),
        (TIGHTEST[0], r#"5, 5;w=1;name="address""#),
        (TIGHTEST[1], "4"),
        (TIGHTEST[2], "1"),
    ];

    fn earlier(name: &str) -> Option<String> {
        let mut all = EARLIER.iter();
        let (_, value) = all.find(|(known, _)| *known == name)?;
        Some((*value).to_owned())
    }

    fn tightest(left: &str) -> Notes {
        let values = [r#"9, 9;w=1;name="user""#, left, ""];
        let values = values.map(str::to_owned);
        TIGHTEST.into_iter().zip(values).collect()
    }

    #[test]
    fn the_first_filter_leaves_what_it_has_to_tell() {
        let notes = vec![(WAITED_MS, "5".to_owned()), (SHADOW, "a/b".to_owned())];
        assert_eq!(joined(notes.clone(), |_| None), notes);
        assert_eq!(joined(tightest("9"), |_| None), tightest("9")[..2]);
    }

    #[test]
    fn the_next_filter_adds_to_it() {
        let rows = [
            (WAITED_MS, "5", "25"),
            (SHADOW, "user/requests", "address/requests, user/requests"),
            (
                RATELIMIT,
                r#""user";r=9;t=1"#,
                r#""address";r=4;t=1, "user";r=9;t=1"#,
            ),
            (
                RATELIMIT_POLICY,
                r#""user";q=9;w=1"#,
                r#""address";q=5;w=1, "user";q=9;w=1"#,
            ),
            (REASON, "user/requests", "user/requests"),
            (PAUSE_MS, "7", "7"),
        ];
        for (name, value, want) in rows {
            let notes = joined(vec![(name, value.to_owned())], earlier);
            assert_eq!(notes, [(name, want.to_owned())]);
        }
    }

    #[test]
    fn the_tightest_limit_of_all_filters_is_told_with_all_its_fields() {
        for left in ["4", "9"] {
            assert_eq!(joined(tightest(left), earlier), []);
        }
        assert_eq!(joined(tightest("3"), earlier), tightest("3"));
    }

    #[test]
    fn a_refusal_takes_away_what_an_earlier_filter_has_told_of_its_tightest_limit() {
        let none: Notes = TIGHTEST.map(|name| (name, String::new())).into();
        assert_eq!(joined(none.clone(), earlier), none);
        assert_eq!(joined(none, |_| None), []);
    }
}
