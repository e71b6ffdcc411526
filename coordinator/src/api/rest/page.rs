//! Status page: [`Status`] for a person with a browser.
//!
//! One HTML page that loads nothing else. Scopes and clients come out of requests, so every text is
//! escaped, and the policy that goes with the page lets only its own style and script work, which
//! it names by their hashes: a text that got through could still do nothing.

use std::fmt::{self, Write as _};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use self::bar::bar;
use self::text::{Escaped, amount, duration, number};
use super::App;
use super::openapi::ReadLeases;
use super::peers::Caller;
use super::problem::RestError;
use super::status::{DEFAULT, Status};
use crate::leases::stats::ResourceStats;
use crate::leases::view::{Amount, BusyResource, ResourceClient};

mod bar;
mod cluster;
mod parent;
mod text;

const STYLE: &str = include_str!("page/style.css");

const SCRIPT: &str = include_str!("page/script.js");

/// The status page.
#[utoipa::path(
    get, path = "/", operation_id = "getStatusPage", tag = "health",
    responses(
        (status = 200, description = "HTML", body = str, content_type = "text/html"), ReadLeases
    )
)]
pub(super) async fn get(State(app): State<App>, caller: Caller) -> Result<Response, RestError> {
    let status = Status::everywhere(&app, &caller, DEFAULT, true).await?;
    let mut html = String::new();
    page(&mut html, &status).map_err(|_| RestError::Text("the status page"))?;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    Ok((headers, html).into_response())
}

/// Nothing but the page's own style and script, and its way to the next page.
fn policy() -> String {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
}

fn page(out: &mut String, status: &Status) -> fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Tollgate</title>\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>Tollgate</h1><p>{}</p><p id=\"state\" role=\"status\"></p></header>\n",
        Escaped(&status.version)
    )?;
    out.push_str("<main>\n");
    summary(out, status)?;
    if let Some(cluster) = &status.cluster {
        cluster::cluster(out, cluster)?;
    }
    if let Some(parent) = &status.parent {
        parent::parent(out, parent)?;
    }
    units(out, status)?;
    groups(out, status)?;
    busiest(out, &status.busiest)?;
    write!(
        out,
        "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn summary(out: &mut String, status: &Status) -> fmt::Result {
    let sum = |part: fn(&ResourceStats) -> usize| {
        let parts = status.units.values().map(part);
        number(parts.sum::<usize>() as f64)
    };
    let facts = [
        ("epoch", status.epoch.to_string()),
        ("up", duration(status.uptime_ms)),
        ("refreshes per second", number(status.refreshes_per_second)),
        ("resources", sum(|unit| unit.resources)),
        ("clients", sum(|unit| unit.clients)),
        ("want more than they get", sum(|unit| unit.waiting)),
        ("learning", sum(|unit| unit.learning)),
    ];
    out.push_str("<dl>\n");
    for (name, value) in facts {
        writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    out.push_str("</dl>\n");
    Ok(())
}

fn units(out: &mut String, status: &Status) -> fmt::Result {
    if status.units.is_empty() {
        out.push_str("<p>No client has or wants a lease.</p>\n");
        return Ok(());
    }
    out.push_str(
        "<table>\n<thead><tr><th>unit<th>capacity<th>leased<th>wanted<th>resources<th>clients\
         <tbody>\n",
    );
    for (unit, sums) in &status.units {
        let amount = |value| amount(unit, value);
        writeln!(
            out,
            "<tr><th>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            Escaped(unit),
            amount(sums.capacity.into()),
            amount(sums.has.into()),
            amount(sums.wants.into()),
            number(sums.resources as f64),
            number(sums.clients as f64),
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}

fn groups(out: &mut String, status: &Status) -> fmt::Result {
    if status.groups.is_empty() {
        return Ok(());
    }
    let more = status.group_count.saturating_sub(status.groups.len());
    out.push_str(
        "<h2>Groups</h2>\n<table>\n<thead><tr><th>group<th>attached<th>fair between<th>leased\
         <tbody>\n",
    );
    for group in &status.groups {
        let shared = group.units.iter().map(|(unit, shared)| {
            let has = amount(unit, shared.sum_has.into());
            let capacity = amount(unit, shared.capacity);
            format!("{has} of {capacity} {unit}")
        });
        let shared: Vec<String> = shared.collect();
        writeln!(
            out,
            "<tr><th>{}<td>{}<td>{}<td>{}",
            Escaped(&group.name),
            number(group.attached_count as f64),
            Escaped(&group.fair_between),
            shared.join(", ")
        )?;
    }
    out.push_str("</table>\n");
    if more > 0 {
        writeln!(out, "<p>and {} more</p>", number(more as f64))?;
    }
    Ok(())
}

fn busiest(out: &mut String, resources: &[BusyResource]) -> fmt::Result {
    if resources.is_empty() {
        return Ok(());
    }
    out.push_str("<h2>Busiest</h2>\n");
    resources.iter().try_for_each(|one| resource(out, one))
}

fn resource(out: &mut String, resource: &BusyResource) -> fmt::Result {
    let BusyResource {
        scope,
        unit,
        summary,
        waiting_count,
        clients,
        ..
    } = resource;
    let amount = |value| amount(unit, value);
    let class = if *waiting_count > 0 {
        " class=\"waiting\""
    } else {
        ""
    };
    writeln!(
        out,
        "<article{class}>\n<h3>{} <small>{}</small></h3>",
        Escaped(scope),
        Escaped(unit)
    )?;
    let wanted = amount(summary.sum_wants);
    if summary.at_most() == Amount::Unlimited {
        write!(out, "<p>no limit, {wanted} wanted")?;
    } else {
        let (has, at_most) = (amount(summary.sum_has), amount(summary.at_most()));
        write!(out, "<p>{has} leased of {at_most}, {wanted} wanted")?;
    }
    if let Some(limited_by) = &summary.limited_by {
        write!(out, "; limited by {}", Escaped(&limited_by.whose))?;
    }
    if summary.learning_ms > 0 {
        write!(out, "; learning for {}", duration(summary.learning_ms))?;
    }
    out.push_str("</p>\n");
    bar(out, summary, clients)?;
    let count = number(summary.client_count as f64);
    write!(
        out,
        "<details data-key=\"{} {}\"><summary>{count} clients",
        Escaped(unit),
        Escaped(scope)
    )?;
    if *waiting_count > 0 {
        let count = number(*waiting_count as f64);
        write!(out, ", {count} want more than they get")?;
    }
    out.push_str("</summary>\n<table><thead><tr><th>client<th>has<th>wants<th>expires in<tbody>\n");
    clients
        .iter()
        .try_for_each(|client| row(out, unit, client))?;
    out.push_str("</table></details>\n</article>\n");
    Ok(())
}

fn row(out: &mut String, unit: &str, client: &ResourceClient) -> fmt::Result {
    writeln!(
        out,
        "<tr><th>{}<td>{}<td>{}<td>{}",
        Escaped(&client.client),
        amount(unit, client.has),
        amount(unit, client.wants),
        duration(client.expires_in_ms)
    )
}

#[cfg(test)]
mod tests;
