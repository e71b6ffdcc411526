//! The coordinator above.

use std::fmt::{self, Write as _};

use super::text::{Escaped, amount, duration};
use crate::api::rest::status::ParentStatus;

/// Where it is and when it last answered, and a table of what is borrowed.
pub(super) fn parent(out: &mut String, parent: &ParentStatus) -> fmt::Result {
    let answered = match parent.answered_ms_ago {
        Some(ago) => format!("answered {} ago", duration(ago)),
        None => "has not answered yet".to_owned(),
    };
    // Without the scheme: a page that loads nothing has no URLs either.
    let address = parent.address.split_once("://");
    let address = address.map_or(&*parent.address, |(_, host)| host);
    write!(out, "<h2>Parent</h2>\n<p>{} {answered}", Escaped(address))?;
    if !parent.above.is_empty() {
        write!(out, "; above are {}", Escaped(&parent.above.join(", ")))?;
    }
    if let Some(error) = &parent.error {
        write!(out, "; the last call failed: {}", Escaped(error))?;
    }
    out.push_str("</p>\n<table>\n<thead><tr><th>unit<th>borrowed<th>wanted by band\n<tbody>\n");
    for (unit, sums) in &parent.units {
        let wants = sums.wants.iter();
        let wants = wants.map(|(band, wants)| format!("{band}: {}", amount(unit, (*wants).into())));
        writeln!(
            out,
            "<tr><th>{}<td>{}<td>{}",
            Escaped(unit),
            amount(unit, sums.borrowed.into()),
            Escaped(&wants.collect::<Vec<_>>().join(", ")),
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}
