//! Screen of `tollgate top`, as text.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use tollgate_admin::view::{Amount, BusyResource, Status, UnitSummary};
use tollgate_core::quantity::duration_text;

use super::keys::TopView;
use crate::{print, status};

/// Length of a bar, in characters.
const BAR_LEN: usize = 20;

// === free functions ===

/// Draws the resources of `status` that `view` chooses, at most `rows`, or the error in their place, above the keys.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    view: &TopView,
    rows: usize,
    server: &str,
    status: &Result<Status, String>,
) {
    let [top, bottom] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    let mut keys = view.keys();
    let page = match status {
        Ok(status) => {
            let busiest = view.choose(&status.busiest, rows);
            keys += &format!("   {} of {} resources", busiest.len(), count(status));
            Paragraph::new(styled(&page(server, status, &busiest), &busiest))
        }
        Err(error) => {
            let lines = error.lines().map(print::plain);
            let lines = [print::plain(server), String::new()]
                .into_iter()
                .chain(lines);
            let lines: Vec<_> = lines.map(Line::from).collect();
            Paragraph::new(lines).wrap(Wrap { trim: false })
        }
    };
    frame.render_widget(page, top);
    frame.render_widget(Line::from(keys).reversed(), bottom);
}

/// Returns the busiest resources of `status`.
pub(super) fn text(server: &str, status: &Status) -> String {
    page(server, status, &status.busiest)
}

/// The lines of `page`: its header is bold, and resources are yellow of which clients get less than they want.
fn styled(page: &str, busiest: &[BusyResource]) -> Vec<Line<'static>> {
    let rows = busiest.iter().map(|resource| match resource.waiting_count {
        0 => Style::new(),
        _ => Style::new().yellow(),
    });
    let plain = Style::new();
    let styles = [plain, plain, plain.bold()].into_iter().chain(rows);
    let lines = page.lines().zip(styles);
    lines
        .map(|(line, style)| Line::styled(line.to_owned(), style))
        .collect()
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
    let amount = |amount: Amount| summary.text(unit, amount);
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
    if traffic.attempts_per_second > 0.0 {
        format!(
            "{:.1} %",
            100.0 * traffic.refused_per_second / traffic.attempts_per_second
        )
    } else {
        "-".to_owned()
    }
}

/// Returns the time for which a client has got less than it wants, for the end of a row.
fn throttled(time_ms: Option<u64>) -> String {
    time_ms.map_or_else(String::new, |ms| format!(" for {}", duration_text(ms)))
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

#[cfg(test)]
pub(super) mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;
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
                written: None,
                bucket: None,
                quotas: Vec::new(),
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
    fn a_limit_is_shown_as_it_was_written() {
        let mut minute = resource(Amount::Number(100.0 / 60.0), 0.5, 2.0);
        assert_eq!(row(&minute)[2..5], ["1.67", "0.5", "2"]);
        minute.summary.written = Some("100/min".to_owned());
        assert_eq!(row(&minute)[2..5], ["100/min", "30/min", "120/min"]);
    }

    /// The lines of a screen of 40 columns and 10 rows.
    fn drawn(status: Result<Status, String>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(40, 10)).unwrap();
        let view = TopView::default();
        let result = terminal.draw(|frame| draw(frame, &view, 50, "http://h", &status));
        let cells = result.unwrap().buffer.content.chunks(40);
        let lines = cells.map(|row| row.iter().map(Cell::symbol).collect());
        lines
            .map(|line: String| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_screen_has_the_keys_last_and_nothing_that_a_terminal_obeys() {
        let mut busy = resource(Amount::Number(1.0), 1.0, 1.0);
        busy.scope = "a\u{1b}[31m\nb".to_owned();
        let lines = drawn(Ok(Status {
            version: "1".to_owned(),
            busiest: vec![busy; 50],
            ..Status::default()
        }));
        let keys = "s sort [demand]   / filter   p pause   r";
        assert_eq!(lines[9], keys);
        assert!(lines[3].starts_with("a\\u{1b}[31m\\u{a}b"), "{lines:?}");
        assert!(lines[8].starts_with("a\\u{1b}"), "{lines:?}");

        let lines = drawn(Err(format!("no answer\u{7}\nat all: {}", "x".repeat(40))));
        let want = ["http://h", "", "no answer\\u{7}", "at all:"];
        assert_eq!(lines[..4], want);
        assert_eq!((lines[4].len(), lines[9].as_str()), (40, keys));
    }
}
