//! Screen of `tollgate top`, as text.

use tollgate_admin::view::{Amount, BusyResource, Status, UnitSummary};

use super::keys::TopView;
use crate::{print, status};

/// Length of a bar, in characters.
const BAR_LEN: usize = 20;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// A terminal's screen: the resources that the user chose, and the keys.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    pub(super) view: &'a TopView,
    /// The most resources.
    pub(super) rows: usize,
    pub(super) size: Size,
}

// === impl Screen ===

impl Screen<'_> {
    /// The resources of `status`, or the error in its place, above the keys; all cut to the size.
    pub(super) fn text(&self, server: &str, status: &Result<Status, String>) -> String {
        let (text, count) = match status {
            Err(_) => (text(server, status), String::new()),
            Ok(status) => {
                let busiest = self.view.choose(&status.busiest, self.rows);
                let (shown, all) = (busiest.len(), count(status));
                let count = format!("   {shown} of {all} resources");
                (page(server, status, &busiest), count)
            }
        };
        let mut lines = cut(&text, self.size);
        let keys = format!("{}{count}", self.view.keys());
        lines.push(keys.chars().take(self.size.columns).collect());
        lines.join("\n")
    }
}

// === free functions ===

/// The busiest resources of `status`, or the error in its place.
pub(super) fn text(server: &str, status: &Result<Status, String>) -> String {
    match status {
        Err(error) => format!("{}\n\n{}", print::plain(server), plain_lines(error)),
        Ok(status) => page(server, status, &status.busiest),
    }
}

fn page(server: &str, status: &Status, busiest: &[BusyResource]) -> String {
    let head = status::head(server, status);
    let resources = match (busiest.is_empty(), status.busiest.is_empty()) {
        (true, false) => "no resource has this text in its name".to_owned(),
        _ => resources(busiest),
    };
    format!("{head}\n\n{resources}")
}

/// Number of resources in all lease tables.
fn count(status: &Status) -> usize {
    status.units.values().map(|unit| unit.resources).sum()
}

fn plain_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(print::plain).collect();
    lines.join("\n")
}

fn resources(busiest: &[BusyResource]) -> String {
    let rows: Vec<_> = busiest.iter().map(row).collect();
    if rows.is_empty() {
        return "no client has or wants a lease".to_owned();
    }
    let header = "SCOPE|UNIT|CAPACITY|HAS|WANTS|REFUSED|CLIENTS|WAITING|LIMITED BY|DEMAND";
    print::render(header, rows, false)
}

fn row(resource: &BusyResource) -> Vec<String> {
    let BusyResource {
        scope,
        unit,
        summary,
        waiting_count,
        throttled_for_ms,
        ..
    } = resource;
    let amount = |amount| print::amount(unit, amount);
    vec![
        scope.clone(),
        unit.clone(),
        amount(summary.capacity),
        amount(summary.in_use()),
        amount(summary.sum_wants),
        refused(summary),
        summary.client_count.to_string(),
        waiting_count.to_string(),
        print::or_dash(summary.limited_by.as_ref().map(|by| &by.whose)),
        format!("{}{}", demand(summary), throttled(*throttled_for_ms)),
    ]
}

/// Returns the part of what was asked for lately that was refused.
fn refused(summary: &UnitSummary) -> String {
    let traffic = &summary.traffic;
    match traffic.attempts_per_second > 0.0 {
        true => format!(
            "{:.1} %",
            100.0 * traffic.refused_per_second / traffic.attempts_per_second
        ),
        false => "-".to_owned(),
    }
}

/// Returns the time for which a client has got less than it wants, for the end of a row.
fn throttled(time_ms: Option<u64>) -> String {
    time_ms.map_or_else(String::new, |ms| format!(" for {}", print::duration(ms)))
}

/// Returns a bar, and the wanted part of what the limit that binds leaves.
fn demand(summary: &UnitSummary) -> String {
    if summary.learning_ms > 0 {
        return "learning".to_owned();
    }
    let Amount::Number(capacity) = summary.at_most() else {
        return "no limit".to_owned();
    };
    let part = |amount: Amount| {
        let amount = match amount {
            Amount::Number(amount) => amount,
            Amount::Unlimited => 0.0,
        };
        match (amount > 0.0, capacity > 0.0) {
            (false, _) => 0.0,
            (true, true) => amount / capacity,
            (true, false) => f64::INFINITY,
        }
    };
    let (has, wants) = (part(summary.in_use()), part(summary.sum_wants));
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

/// As many lines of `text` as go onto a terminal above the keys.
fn cut(text: &str, size: Size) -> Vec<String> {
    let lines = text.lines().take(size.rows.saturating_sub(2));
    let lines = lines.map(|line| line.chars().take(size.columns).collect());
    lines.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use tollgate_admin::view::{LimitedBy, TrafficView};

    use super::*;

    pub(in super::super) fn resource(capacity: Amount, has: f64, wants: f64) -> BusyResource {
        BusyResource {
            scope: "tenant/acme".to_owned(),
            unit: "requests".to_owned(),
            summary: UnitSummary {
                capacity,
                safe: None,
                learning_ms: 0,
                sum_has: Amount::Number(has),
                sum_wants: Amount::Number(wants),
                client_count: 2,
                limited_by: None,
                bucket: None,
                traffic: TrafficView::default(),
            },
            waiting_count: 1,
            throttled_for_ms: None,
            clients: Vec::new(),
        }
    }

    #[test]
    fn the_bar_shows_what_clients_have_and_want() {
        let number = Amount::Number;
        let rows = [
            (number(100.0), 50.0, 75.0, "██████████▒▒▒▒▒·····  75 %"),
            (number(100.0), 100.0, 250.0, "████████████████████! 250 %"),
            (number(100.0), 60.0, 30.0, "████████████········  30 %"),
            (number(100.0), 0.0, 0.0, "····················  0 %"),
            (number(0.0), 0.0, 5.0, "▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒! blocked"),
            (number(0.0), 0.0, 0.0, "····················  0 %"),
            (Amount::Unlimited, 0.0, 5.0, "no limit"),
        ];
        for (capacity, has, wants, want) in rows {
            assert_eq!(demand(&resource(capacity, has, wants).summary), want);
        }
    }

    #[test]
    fn a_member_of_a_full_group_is_limited_by_it() {
        let free = resource(Amount::Unlimited, 333.0, 666.0);
        assert_eq!(row(&free)[8..], ["-", "no limit"]);
        let mut member = free;
        member.summary.limited_by = Some(LimitedBy {
            whose: "group gold".to_owned(),
            at_most: Amount::Number(333.0),
        });
        let demand = "████████████████████! 200 %";
        assert_eq!(row(&member)[8..], ["group gold", demand]);
        member.throttled_for_ms = Some(192_000);
        let demand = format!("{demand} for 3m12s");
        assert_eq!(row(&member)[8..], ["group gold", demand.as_str()]);
    }

    #[test]
    fn a_screen_is_no_larger_than_the_terminal_and_has_nothing_it_obeys() {
        let mut busy = resource(Amount::Number(1.0), 1.0, 1.0);
        busy.scope = "a\u{1b}[31m\nb".to_owned();
        let status = Status {
            version: "1".to_owned(),
            busiest: vec![busy; 50],
            ..Status::default()
        };
        let size = Size {
            columns: 40,
            rows: 10,
        };
        let view = TopView::default();
        let rows = 50;
        let screen = Screen {
            view: &view,
            rows,
            size,
        };
        let shown = screen.text("http://h", &Ok(status));
        assert_eq!(shown.lines().count(), 9);
        assert!(shown.lines().all(|line| line.chars().count() <= 40));
        assert!(shown.contains("a\\u{1b}[31m\\u{a}b"), "{shown}");
        assert!(!shown.contains('\u{1b}'));

        let error = Err("no answer\u{7}\nat all".to_owned());
        let away = screen.text("http://h", &error);
        let want = "http://h\n\nno answer\\u{7}\nat all\ns sort [demand]   / filter   p pause   r";
        assert_eq!(away, want);
    }
}
