//! Keys of `tollgate top`, and the view that they choose.

use std::cmp::Ordering;

use tollgate_admin::view::{Amount, BusyResource};

/// The longest filter, in characters.
const FILTER_MAX: usize = 64;

const ENTER: [u8; 2] = [b'\n', b'\r'];
const ESCAPE: u8 = 0x1b;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];

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
    Ignored,
}

// === impl TopView ===

impl TopView {
    /// Handles a key.
    pub(super) fn press(&mut self, key: u8) -> KeyEffect {
        if self.is_typing {
            return self.type_letter(key);
        }
        match key {
            b'q' | b'Q' => return KeyEffect::Quit,
            b' ' | b'r' => return KeyEffect::Look,
            b's' => {
                self.sort = self.sort.next();
                return KeyEffect::Look;
            }
            b'p' => self.is_paused = !self.is_paused,
            b'/' => self.is_typing = true,
            _ => return KeyEffect::Ignored,
        }
        KeyEffect::Redraw
    }

    fn type_letter(&mut self, key: u8) -> KeyEffect {
        if ENTER.contains(&key) {
            self.is_typing = false;
        } else if key == ESCAPE {
            self.is_typing = false;
            self.filter.clear();
        } else if BACKSPACE.contains(&key) {
            self.filter.pop();
        } else if (b' '..=b'~').contains(&key) && self.filter.len() < FILTER_MAX {
            self.filter.push(char::from(key));
        } else {
            return KeyEffect::Ignored;
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

    fn pressed(keys: &[u8]) -> (TopView, KeyEffect) {
        let mut view = TopView::default();
        let effects: Vec<_> = keys.iter().map(|key| view.press(*key)).collect();
        (view, effects.last().copied().unwrap())
    }

    #[test]
    fn each_key_that_is_shown_does_what_is_said() {
        let rows: [(&[u8], KeyEffect, &str); 9] = [
            (
                b"x",
                KeyEffect::Ignored,
                "s sort [demand]   / filter   p pause   r now   q quit",
            ),
            (
                b"q",
                KeyEffect::Quit,
                "s sort [demand]   / filter   p pause   r now   q quit",
            ),
            (
                b"ss",
                KeyEffect::Look,
                "s sort [has]   / filter   p pause   r now   q quit",
            ),
            (
                b"ssss",
                KeyEffect::Look,
                "s sort [demand]   / filter   p pause   r now   q quit",
            ),
            (
                b"p",
                KeyEffect::Redraw,
                "s sort [demand]   / filter   p go on   r now   q quit",
            ),
            (
                b"pp",
                KeyEffect::Redraw,
                "s sort [demand]   / filter   p pause   r now   q quit",
            ),
            (
                b"/qp",
                KeyEffect::Look,
                "filter: qp_   Enter keeps it   Esc shows all",
            ),
            (
                b"/ab\x7f\n",
                KeyEffect::Look,
                "s sort [demand]   / filter [a]   p pause   r now   q quit",
            ),
            (
                b"/ab\x1b",
                KeyEffect::Look,
                "s sort [demand]   / filter   p pause   r now   q quit",
            ),
        ];
        for (keys, effect, shown) in rows {
            let (view, last) = pressed(keys);
            assert_eq!((last, view.keys().as_str()), (effect, shown), "{keys:?}");
        }
        let (view, last) = pressed(&[&b"/"[..], &[b'a'; 100]].concat());
        assert_eq!((view.filter.len(), last), (FILTER_MAX, KeyEffect::Ignored));
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
        let rows: [(&[u8], usize, &[&str]); 6] = [
            (b"r", 9, &["tenant/b", "route/c", "tenant/a"]),
            (b"s", 9, &["tenant/b", "tenant/a", "route/c"]),
            (b"ss", 2, &["route/c", "tenant/a"]),
            (b"sss", 9, &["route/c", "tenant/a", "tenant/b"]),
            (b"/tenant\nsss", 1, &["tenant/a"]),
            (b"/nothing", 9, &[]),
        ];
        for (keys, count, want) in rows {
            let (view, _) = pressed(keys);
            let chosen = view.choose(&all, count);
            let scopes: Vec<&str> = chosen.iter().map(|one| one.scope.as_str()).collect();
            assert_eq!(scopes, want, "{keys:?}");
        }
    }
}
