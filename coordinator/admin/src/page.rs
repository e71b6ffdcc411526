//! Pages for people with browsers: the status, each scope, each group, and the API's description.
//!
//! They are whole without JavaScript, and load nothing else. Scopes and clients come out of requests,
//! so the templates escape every text, and the policy that goes with each page lets only its own
//! style and script work, which it names by their hashes: a text that got through could still do
//! nothing.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};
use tollgate_net::clock;

use self::text::{Text, time_of_day};

mod bar;
mod chart;
mod client_table;
mod cluster;
pub(super) mod error;
pub(super) mod group;
mod legend;
pub(super) mod overview;
mod parent;
mod past;
mod query;
mod quota;
mod resource_table;
pub(super) mod scope;
mod sorting;
mod text;
mod verdict;

/// Style of the pages, which reports of simulations have, too.
pub const STYLE: &str = include_str!("page/style.css");

const SCRIPT: &str = include_str!("page/script.js");

/// A toll bar, drawn without loading anything.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Cpath fill='%232f6f62' d='M2 4h3v10H2z'/%3E%3Cpath fill='%23a8430c' d='M5 6h10v3H5z'/%3E%3C/svg%3E";

/// A page, without the frame that all share.
#[derive(Debug)]
pub(super) struct Page {
    title: String,
    main: Markup,
    /// Whether the page fetches itself again and again.
    is_live: bool,
}

// === impl Page ===

impl Page {
    /// A page that shows what is there now, and updates itself.
    fn live(title: impl Into<String>, main: Markup) -> Self {
        Self {
            title: title.into(),
            main,
            is_live: true,
        }
    }

    /// A page that stays as it is.
    fn fixed(title: impl Into<String>, main: Markup) -> Self {
        Self {
            is_live: false,
            ..Self::live(title, main)
        }
    }

    fn html(&self) -> Markup {
        let title = Text(&self.title);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · Tollgate" }
                    link rel="icon" href=(ICON);
                    @if self.is_live { noscript { meta http-equiv="refresh" content="5"; } }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    (self.header())
                    main tabindex="-1" { (self.main) }
                    @if self.is_live { script { (PreEscaped(SCRIPT)) } }
                }
            }
        }
    }

    fn header(&self) -> Markup {
        let now = time_of_day(clock::unix_time());
        html! {
            header {
                a.brand href="/" { "Tollgate" }
                nav aria-label="Pages" {
                    a href="/" { "Status" }
                    a href="/v1/openapi.json" { "API" }
                }
                @if self.is_live {
                    p { span #updated { "updated " (now) " UTC" } span #trouble role="alert" {} }
                }
                p.version { (env!("CARGO_PKG_VERSION")) }
            }
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, &POLICY),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        (headers, self.html().into_string()).into_response()
    }
}

/// Nothing but the pages' own style and script, their search, and their way to the next page.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

#[cfg(test)]
mod tests;
