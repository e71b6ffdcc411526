//! Page of a problem, for people with browsers; programs get it as JSON.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::Page;
use super::text::Text;
use crate::problem::Problem;

/// Passes a request on, and turns the problem in its answer into a page where a browser asked.
pub(crate) async fn for_people(request: Request, next: Next) -> Response {
    let by_browser = request.method() == Method::GET && takes_html(request.headers());
    let response = next.run(request).await;
    match response.extensions().get::<Problem>() {
        Some(problem) if by_browser => page(problem.clone(), response),
        _ => response,
    }
}

fn page(problem: Problem, response: Response) -> Response {
    let status = response.status();
    let title = problem.title.clone();
    let mut page = Page::fixed(title, main(&problem)).into_response();
    *page.status_mut() = status;
    let (mut headers, own) = (response.headers().clone(), page.headers());
    // A challenge, or when to try again, is for browsers as well.
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers.extend(own.clone());
    *page.headers_mut() = headers;
    page
}

fn main(problem: &Problem) -> Markup {
    let is_missing = problem.status == StatusCode::NOT_FOUND.as_u16();
    html! {
        h1 { small.kind { (problem.status) } (problem.title) }
        p.verdict { (Text(&problem.detail)) }
        p {
            @if is_missing { "It may have gone since. " }
            a href="/" { "Back to the status" }
        }
    }
}

/// Returns whether the sender of `headers` names HTML among what it takes, as browsers do.
fn takes_html(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter();
    let mut accept = accept.filter_map(|value| value.to_str().ok());
    accept.any(|value| value.split(',').any(is_html))
}

fn is_html(range: &str) -> bool {
    let kind = range.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_names_html_gets_a_page() {
        let rows = [
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("application/json, Text/HTML;q=0.9", true),
            ("*/*", false),
            ("application/json", false),
            ("text/html5", false),
        ];
        for (accept, want) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(takes_html(&headers), want, "{accept}");
        }
        assert!(!takes_html(&HeaderMap::new()));
    }
}
