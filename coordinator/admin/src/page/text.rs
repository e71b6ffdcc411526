//! Texts and numbers as they stand on the pages.

use std::borrow::Cow;
use std::time::Duration;

use maud::{Markup, Render, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_core::quantity::amount_text;
pub(super) use tollgate_core::quantity::duration_text as duration;
use tollgate_net::clock::date_text;

use crate::lease_view::Amount;

/// Everything but RFC 3986's unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The same, and the slash stays.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// Digits of a client's random part that are shown.
const RANDOM_SHOWN: usize = 4;

/// A text out of a request. It stands for itself in HTML, between tags and in attributes, which the
/// templates quote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a str);

// === impl Text ===

impl Render for Text<'_> {
    fn render_to(&self, out: &mut String) {
        str::render_to(&plain(self.0), out);
    }
}

// === free functions ===

/// Replaces the characters of `text` that change a text's direction, or are not to be seen: they could
/// make one scope look like another.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_hidden, "\u{fffd}"))
}

/// Returns `name` so that its own direction of writing does not reach beyond it.
pub(super) fn name(name: &str) -> Markup {
    html! { bdi { (Text(name)) } }
}

/// Returns the name of a client, `<node id>/<random>`, with no more of the random part than tells its
/// runs apart.
pub(super) fn client_name(id: &str) -> Markup {
    html! { bdi title=[is_long(id).then_some(Text(id))] { (Text(&short_client(id))) } }
}

/// Returns the id of a client with four digits of its random part.
pub(super) fn short_client(id: &str) -> Cow<'_, str> {
    match id.rsplit_once('/') {
        Some((node, random)) if is_long(id) => {
            let first = random.get(..RANDOM_SHOWN).unwrap_or(random);
            Cow::Owned(format!("{node}/{first}…"))
        }
        _ => Cow::Borrowed(id),
    }
}

/// Returns whether the client `id` ends with a long random part.
fn is_long(id: &str) -> bool {
    id.rsplit_once('/').is_some_and(|(node, random)| {
        let is_random = random.bytes().all(|byte| byte.is_ascii_hexdigit());
        !node.is_empty() && random.len() >= 2 * RANDOM_SHOWN && is_random
    })
}

/// Returns the path of the page of `scope`.
pub(super) fn scope_path(scope: &str) -> String {
    // A browser resolves `..`, also an encoded one, but only between slashes.
    let climbs = scope.split('/').any(|part| matches!(part, "." | ".."));
    let set = if climbs { RESERVED } else { RESERVED_IN_PATH };
    format!("/scopes/{}", utf8_percent_encode(scope, set))
}

/// Returns the path of the page of the group `name`.
pub(super) fn group_path(name: &str) -> String {
    format!("/groups/{}", utf8_percent_encode(name, RESERVED))
}

/// Returns `path` with a query of those `fields` that have a value.
pub(super) fn with_query(path: &str, fields: &[(&str, String)]) -> String {
    let mut link = path.to_owned();
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    for (i, (name, value)) in given.enumerate() {
        link.push(if i == 0 { '?' } else { '&' });
        link.push_str(name);
        link.push('=');
        link.extend(utf8_percent_encode(value, RESERVED));
    }
    link
}

/// Returns the owner of a limit, with a link to the page of a group.
pub(super) fn owner(whose: &str) -> Markup {
    match whose.strip_prefix("group ") {
        Some(group) => html! { a href=(group_path(group)) { (name(whose)) } },
        None => name(whose),
    }
}

/// Returns an amount of `unit` in a few digits.
pub(super) fn amount(unit: &str, amount: Amount) -> String {
    amount.text(unit)
}

/// Returns the words after an amount of `unit` that names its period: `requests`.
pub(super) fn unit_words_alone(unit: &str) -> &str {
    let words = unit_words(unit);
    words.strip_suffix(" per second").unwrap_or(words)
}

/// Returns the words after an amount of `unit`: `requests per second`.
pub(super) fn unit_words(unit: &str) -> &str {
    match unit {
        "requests" => "requests per second",
        "request_bytes" => "of request bodies per second",
        "response_bytes" => "of response bodies per second",
        "concurrency" => "requests in flight",
        other => other,
    }
}

/// Returns a number in a few digits.
pub(super) fn number(value: f64) -> String {
    amount_text("", value)
}

/// A count.
pub(super) fn count(value: usize) -> String {
    number(value as f64)
}

/// A count with its noun: `1 client`, `2 clients`.
pub(super) fn counted(value: usize, noun: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(value))
}

/// A time in seconds since 1970, as a date.
pub(super) fn date(since_1970: u64) -> Markup {
    let text = date_text(since_1970);
    html! { time datetime=(text) { (text) } }
}

/// The time of the day at `since_1970`, in UTC.
pub(super) fn time_of_day(since_1970: Duration) -> String {
    let s = since_1970.as_secs();
    format!("{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_place() {
        let rows = [
            ("tenant/acme", "tenant/acme"),
            ("<script>", "&lt;script&gt;"),
            ("\" onload='x'", "&quot; onload='x'"),
            ("a&lt;b", "a&amp;lt;b"),
            ("bücher/日本", "bücher/日本"),
            ("a\u{202e}b", "a\u{fffd}b"),
            ("a\u{200b}b\0", "a\u{fffd}b\u{fffd}"),
        ];
        for (text, want) in rows {
            assert_eq!(Text(text).render().into_string(), want);
        }
    }

    #[test]
    fn a_link_leads_to_the_scope_whatever_it_is_called() {
        let rows = [
            ("tenant/acme", "/scopes/tenant/acme"),
            ("tenant/a b?c#d", "/scopes/tenant/a%20b%3Fc%23d"),
            ("tenant/100%", "/scopes/tenant/100%25"),
            ("tenant/../x", "/scopes/tenant%2F..%2Fx"),
            ("tenant/\\..\\x", "/scopes/tenant/%5C..%5Cx"),
            ("tenant/日", "/scopes/tenant/%E6%97%A5"),
        ];
        for (scope, want) in rows {
            assert_eq!(scope_path(scope), want);
        }
        assert_eq!(group_path("a/b"), "/groups/a%2Fb");
        let fields = [("q", "a&b".to_owned()), ("unit", String::new())];
        assert_eq!(with_query("/", &fields), "/?q=a%26b");
    }

    #[test]
    fn a_client_has_no_more_of_its_random_part_than_tells_its_runs_apart() {
        let rows = [
            ("envoy-1/3a14b2c9d0e1f203", "envoy-1/3a14…"),
            ("region/envoy-1/3a14b2c9d0e1f203", "region/envoy-1/3a14…"),
            ("envoy-1/3a14", "envoy-1/3a14"),
            ("doorman/envoy-2", "doorman/envoy-2"),
            ("3a14b2c9d0e1f203", "3a14b2c9d0e1f203"),
            ("/3a14b2c9d0e1f203", "/3a14b2c9d0e1f203"),
        ];
        for (id, want) in rows {
            assert_eq!(short_client(id), want);
        }
        let shown = client_name("envoy-1/3a14b2c9d0e1f203").into_string();
        assert!(
            shown.contains("title=\"envoy-1/3a14b2c9d0e1f203\""),
            "{shown}"
        );
    }

    #[test]
    fn counts_and_times_are_as_people_write_them() {
        assert_eq!(counted(1, "client"), "1 client");
        assert_eq!(counted(2004, "client"), "2004 clients");
        let at = Duration::from_secs(86_400 * 20_000 + 3_723);
        assert_eq!(time_of_day(at), "01:02:03");
    }
}
