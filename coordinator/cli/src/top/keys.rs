//! Keys of `tollgate top`, and the view that they choose.

use std::cmp::Ordering;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tollgate_admin::view::{Amount, BusyResource};

/// The longest filter, in characters.
const FILTER_MAX: usize = 64;

/// View of the resources that the user chose.
#[derive(Debug, Default)]
pub(super) struct TopView {
    pub(super) sort: SortColumn,
    /// Part of the scopes and units that are shown.
    pub(super) filter: String,
    /// Whether keys are letters of the filter.
    is_typing: bool,
    pub(super) is_paused: bool,
}

/// Order of the resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortColumn {
    /// The coordinator's: by the wanted part of the capacity.
    #[default]
    Demand,
    Wants,
    Has,
    Name,
}

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Quit,
    /// Ask the coordinator at once.
    Look,
    Redraw,
}

// === impl TopView ===

impl TopView {
    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyEffect::Quit;
        }
        if self.is_typing {
            return self.type_letter(key.code);
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return KeyEffect::Quit,
            KeyCode::Char(' ' | 'r') => return KeyEffect::Look,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                return KeyEffect::Look;
            }
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            _ => {}
        }
        KeyEffect::Redraw
    }

    fn type_letter(&mut self, key: KeyCode) -> KeyEffect {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(letter);
            }
            _ => return KeyEffect::Redraw,
        }
        KeyEffect::Look
    }

    /// Whether the first resources of the coordinator's order are all that is shown.
    pub(super) fn is_plain(&self) -> bool {
        self.sort == SortColumn::Demand && self.filter.is_empty()
    }

    /// The first `rows` of those of `resources` that the filter lets through, in their order.
    pub(super) fn choose(&self, resources: &[BusyResource], rows: usize) -> Vec<BusyResource> {
        let is_shown = |one: &&BusyResource| {
            one.scope.contains(&self.filter) || one.unit.contains(&self.filter)
        };
        let mut shown: Vec<_> = resources.iter().filter(is_shown).cloned().collect();
        shown.sort_by(|one, other| self.sort.compare(one, other));
        shown.truncate(rows);
        shown
    }

    /// The keys, for the last line of the screen.
    pub(super) fn keys(&self) -> String {
        let Self { sort, filter, .. } = self;
        if self.is_typing {
            return format!("filter: {filter}_   Enter keeps it   Esc shows all");
        }
        let pause = if self.is_paused { "p go on" } else { "p pause" };
        let filter = match filter.as_str() {
            "" => String::new(),
            filter => format!(" [{filter}]"),
        };
        format!(
            "s sort [{}]   / filter{filter}   {pause}   r now   q quit",
            sort.name()
        )
    }
}

// === impl SortColumn ===

impl SortColumn {
    fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Wants => "wants",
            Self::Has => "has",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Demand => Self::Wants,
            Self::Wants => Self::Has,
            Self::Has => Self::Name,
            Self::Name => Self::Demand,
        }
    }

    fn compare(self, one: &BusyResource, other: &BusyResource) -> Ordering {
        let number = |amount: Amount| match amount {
            Amount::Number(number) => number,
            Amount::Unlimited => f64::INFINITY,
        };
        let largest_first =
            |of: fn(&BusyResource) -> Amount| number(of(other)).total_cmp(&number(of(one)));
        match self {
            // The sort is stable.
            Self::Demand => Ordering::Equal,
            Self::Wants => largest_first(|of| of.summary.sum_wants),
            Self::Has => largest_first(|of| of.summary.sum_has),
            Self::Name => (&one.scope, &one.unit).cmp(&(&other.scope, &other.unit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::resource;
    use super::*;

    /// Presses keys, of which `\n` is Enter, `\x1b` Escape and `\x7f` Backspace.
    fn pressed(keys: &str) -> (TopView, KeyEffect) {
        let mut view = TopView::default();
        let mut press = |key| {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{7f}' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            view.press(code.into())
        };
        let last = keys.chars().map(&mut press).last();
        (view, last.unwrap())
    }

    #[test]
    fn each_key_that_is_shown_has_its_effect() {
        let plain = "s sort [demand]   / filter   p pause   r now   q quit";
        let rows = [
            ("x", KeyEffect::Redraw, plain),
            ("q", KeyEffect::Quit, plain),
            (
                "ss",
                KeyEffect::Look,
                "s sort [has]   / filter   p pause   r now   q quit",
            ),
            ("ssss", KeyEffect::Look, plain),
            (
                "p",
                KeyEffect::Redraw,
                "s sort [demand]   / filter   p go on   r now   q quit",
            ),
            ("pp", KeyEffect::Redraw, plain),
            (
                "/qp",
                KeyEffect::Look,
                "filter: qp_   Enter keeps it   Esc shows all",
            ),
            (
                "/aé\x7f\n",
                KeyEffect::Look,
                "s sort [demand]   / filter [a]   p pause   r now   q quit",
            ),
            ("/ab\x1b", KeyEffect::Look, plain),
        ];
        for (keys, effect, shown) in rows {
            let (view, last) = pressed(keys);
            assert_eq!((last, view.keys().as_str()), (effect, shown), "{keys:?}");
        }
        let (view, last) = pressed(&format!("/{}", "é".repeat(100)));
        assert_eq!(view.filter.chars().count(), FILTER_MAX);
        assert_eq!(last, KeyEffect::Redraw);
        for mut view in [TopView::default(), pressed("/").0] {
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(view.press(key), KeyEffect::Quit);
        }
    }

    #[test]
    fn resources_are_filtered_first_and_sorted_then() {
        let named = |name: &str, has: f64, wants: f64| {
            let mut one = resource(Amount::Unlimited, has, wants);
            one.scope = name.to_owned();
            one
        };
        let all = [
            named("tenant/b", 1.0, 9.0),
            named("route/c", 5.0, 5.0),
            named("tenant/a", 2.0, 7.0),
        ];
        let rows: [(&str, usize, &[&str]); 6] = [
            ("r", 9, &["tenant/b", "route/c", "tenant/a"]),
            ("s", 9, &["tenant/b", "tenant/a", "route/c"]),
            ("ss", 2, &["route/c", "tenant/a"]),
            ("sss", 9, &["route/c", "tenant/a", "tenant/b"]),
            ("/tenant\nsss", 1, &["tenant/a"]),
            ("/nothing", 9, &[]),
        ];
        for (keys, count, want) in rows {
            let (view, _) = pressed(keys);
            let chosen = view.choose(&all, count);
            let scopes: Vec<&str> = chosen.iter().map(|one| one.scope.as_str()).collect();
            assert_eq!(scopes, want, "{keys:?}");
        }
    }
}
