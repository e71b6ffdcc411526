//! What `tollgate top` shows, as text.

use serde_json::Value;

use crate::{print, status};

/// How long a bar is, in characters.
const BAR_LEN: usize = 20;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The busiest resources of `status`, cut to `size` if there is one. Instead of a status there may
/// be a text that says why there is none.
pub(super) fn text(server: &str, status: &Value, size: Option<Size>) -> String {
    let text = match status {
        Value::String(error) => format!("{}\n\n{}", print::plain(server), plain_lines(error)),
        status => format!("{}\n\n{}", status::head(server, status), resources(status)),
    };
    match size {
        None => text,
        Some(size) => cut(&text, size),
    }
}

fn plain_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(print::plain).collect();
    lines.join("\n")
}

fn resources(status: &Value) -> String {
    let busiest = status["busiest"].as_array().into_iter().flatten();
    let rows: Vec<_> = busiest.map(row).collect();
    if rows.is_empty() {
        return "no client has or wants a lease".to_owned();
    }
    let header = [
        "SCOPE",
        "UNIT",
        "CAPACITY",
        "HAS",
        "WANTS",
        "CLIENTS",
        "WAITING",
        "LIMITED BY",
        "DEMAND",
    ];
    print::render(&header, rows, false)
}

fn row(resource: &Value) -> Vec<String> {
    let unit = print::text(&resource["unit"]);
    let amount = |field: &str| print::amount(&unit, &resource[field]);
    vec![
        print::text(&resource["scope"]),
        unit.clone(),
        amount("capacity"),
        amount("sum_has"),
        amount("sum_wants"),
        print::text(&resource["client_count"]),
        print::text(&resource["waiting_count"]),
        limited_by(resource),
        demand(resource),
    ]
}

/// The owner of the limit that binds it.
fn limited_by(resource: &Value) -> String {
    print::text(&resource["limited_by"]["whose"])
}

/// The most that its clients may have, by the limit that binds it; none without a limit.
fn at_most(resource: &Value) -> Option<f64> {
    let bound = resource["limited_by"]["at_most"].as_f64();
    bound.or_else(|| resource["capacity"].as_f64())
}

/// A bar, and the part that is wanted of what the limit that binds leaves.
fn demand(resource: &Value) -> String {
    if resource["learning_ms"].as_u64().is_some_and(|ms| ms > 0) {
        return "learning".to_owned();
    }
    let Some(capacity) = at_most(resource) else {
        return "no limit".to_owned();
    };
    let part = |field: &str| {
        let amount = resource[field].as_f64().unwrap_or_default();
        match (amount > 0.0, capacity > 0.0) {
            (false, _) => 0.0,
            (true, true) => amount / capacity,
            (true, false) => f64::INFINITY,
        }
    };
    let (has, wants) = (part("sum_has"), part("sum_wants"));
    let cells = |part: f64| ((part * BAR_LEN as f64).round() as usize).min(BAR_LEN);
    let has = cells(has);
    let wanted = cells(wants).max(has);
    let percent = if wants.is_finite() {
        format!("{:.0} %", wants * 100.0)
    } else {
        "blocked".to_owned()
    };
    format!(
        "{}{}{}{} {percent}",
        "█".repeat(has),
        "▒".repeat(wanted - has),
        "·".repeat(BAR_LEN - wanted),
        if wants > 1.0 { "!" } else { " " },
    )
}

/// As much of `text` as goes onto a terminal.
fn cut(text: &str, size: Size) -> String {
    let lines = text.lines().take(size.rows.saturating_sub(1));
    let lines = lines.map(|line| line.chars().take(size.columns).collect());
    lines.collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(capacity: Value, has: f64, wants: f64) -> Value {
        json!({
            "scope": "tenant/acme", "unit": "requests", "capacity": capacity, "sum_has": has,
            "sum_wants": wants, "client_count": 2, "waiting_count": 1, "learning_ms": 0,
        })
    }

    #[test]
    fn the_bar_shows_what_clients_have_and_want() {
        let rows = [
            (json!(100.0), 50.0, 75.0, "██████████▒▒▒▒▒·····  75 %"),
            (json!(100.0), 100.0, 250.0, "████████████████████! 250 %"),
            (json!(100.0), 60.0, 30.0, "████████████········  30 %"),
            (json!(100.0), 0.0, 0.0, "····················  0 %"),
            (json!(0.0), 0.0, 5.0, "▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒! blocked"),
            (json!(0.0), 0.0, 0.0, "····················  0 %"),
            (json!("unlimited"), 0.0, 5.0, "no limit"),
        ];
        for (capacity, has, wants, want) in rows {
            assert_eq!(demand(&resource(capacity, has, wants)), want);
        }
    }

    #[test]
    fn a_member_of_a_full_group_is_limited_by_it() {
        let mut member = resource(json!("unlimited"), 333.0, 666.0);
        member["limited_by"] = json!({"whose": "group gold", "at_most": 333.0});
        let row = row(&member);
        assert_eq!(row[7..], ["group gold", "████████████████████! 200 %"]);
        let free = resource(json!("unlimited"), 333.0, 666.0);
        assert_eq!(super::row(&free)[7..], ["-", "no limit"]);
    }

    #[test]
    fn a_screen_is_no_larger_than_the_terminal_and_has_nothing_it_obeys() {
        let mut busy = resource(json!(1.0), 1.0, 1.0);
        busy["scope"] = json!("a\u{1b}[31m\nb");
        let status = json!({ "version": "1", "epoch": 1, "busiest": vec![busy; 50] });
        let size = Size {
            columns: 40,
            rows: 10,
        };
        let shown = text("http://h", &status, Some(size));
        assert_eq!(shown.lines().count(), 9);
        assert!(shown.lines().all(|line| line.chars().count() <= 40));
        assert!(shown.contains("a\\u{1b}[31m\\u{a}b"), "{shown}");
        assert!(!shown.contains('\u{1b}'));

        let away = text("http://h", &json!("no answer\u{7}\nat all"), Some(size));
        assert_eq!(away, "http://h\n\nno answer\\u{7}\nat all");
    }
}
