//! The coordinator above.

use maud::{Markup, html};

use super::text::{Text, amount, duration};
use crate::status::{BorrowedStatus, ParentStatus};

/// Address and last answer of `parent`, and a table of the borrowed capacity.
pub(super) fn parent(parent: &ParentStatus) -> Markup {
    // Without the scheme: a page that loads nothing has no URLs either.
    let address = parent.address.split_once("://");
    let address = address.map_or(&*parent.address, |(_, host)| host);
    html! {
        section.side {
            h2 { "Parent" }
            p {
                (Text(address))
                @match parent.answered_ms_ago {
                    Some(ago) => { " answered " (duration(ago)) " ago" }
                    None => { " has not answered yet" }
                }
                @if !parent.above.is_empty() {
                    "; above are " (Text(&parent.above.join(", ")))
                }
                @if let Some(error) = &parent.error {
                    strong.alert { "; the last call failed: " (Text(error)) }
                }
            }
            table {
                thead { tr {
                    th scope="col" { "unit" } th.num scope="col" { "borrowed" }
                    th.num scope="col" { "wanted by band" }
                } }
                tbody { @for (name, sums) in &parent.units { (unit(name, sums)) } }
            }
        }
    }
}

fn unit(unit: &str, sums: &BorrowedStatus) -> Markup {
    let wants = sums.wants.iter();
    let wants = wants.map(|(band, wants)| format!("{band}: {}", amount(unit, (*wants).into())));
    html! {
        tr {
            th scope="row" { (Text(unit)) }
            td.num { (amount(unit, sums.borrowed.into())) }
            td.num { (Text(&wants.collect::<Vec<_>>().join(", "))) }
        }
    }
}
