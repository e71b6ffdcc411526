//! Order of a table, and the links in its head that change it.

use maud::{Markup, html};

use super::text::with_query;
use crate::stats::SortOrder;

/// Column of a table that can be sorted by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its value of `sort`.
    pub(super) key: &'static str,
    /// Its head.
    pub(super) title: &'static str,
    /// The order in which people first want it.
    pub(super) first: SortOrder,
}

/// Order of a table.
#[derive(Clone, Debug)]
pub(super) struct Sorting {
    /// The page's path.
    pub(super) path: String,
    /// The fields of its query that stay as they are.
    pub(super) hidden: Vec<(&'static str, String)>,
    /// The key of the column that it is sorted by.
    pub(super) by: &'static str,
    /// The direction.
    pub(super) order: SortOrder,
}

// === impl Sorting ===

impl Sorting {
    /// Returns the head of `column`: a link that sorts by it, or turns the order round.
    pub(super) fn head(&self, column: Column) -> Markup {
        let is_current = self.by == column.key;
        let (next, aria, arrow) = match self.order {
            _ if !is_current => (column.first, None, ""),
            SortOrder::Asc => (SortOrder::Desc, Some("ascending"), "▲"),
            SortOrder::Desc => (SortOrder::Asc, Some("descending"), "▼"),
        };
        let mut fields = self.hidden.clone();
        fields.push(("sort", column.key.to_owned()));
        fields.push(("order", order_name(next).to_owned()));
        let is_number = column.first == SortOrder::Desc;
        html! {
            th.num[is_number] scope="col" aria-sort=[aria] {
                a href=(with_query(&self.path, &fields)) data-stay {
                    (column.title) span.arrow aria-hidden="true" { (arrow) }
                }
            }
        }
    }
}

// === free functions ===

/// Returns the value of `order` for `order`.
pub(super) fn order_name(order: SortOrder) -> &'static str {
    match order {
        SortOrder::Asc => "asc",
        SortOrder::Desc => "desc",
    }
}
