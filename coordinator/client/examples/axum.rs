//! HTTP server whose requests are limited by tenant.
//!
//! With a coordinator at port 7710: `cargo run -p tollgate-client --example axum`, then
//! `curl -i -H "x-tenant: acme" http://127.0.0.1:8080/`.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use tollgate_client::{Charge, Client, Rule, Settings, TollgateLayer};

/// A request is its tenant's; without one it belongs to all others without.
fn by_tenant(request: &Request) -> Option<Charge> {
    let tenant = request.headers().get("x-tenant");
    let tenant = tenant.and_then(|tenant| tenant.to_str().ok());
    let tenant = tenant.unwrap_or("unknown");
    Some(Charge::of(format!("tenant/{tenant}")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let coordinator =
        std::env::var("TOLLGATE").unwrap_or_else(|_| "http://127.0.0.1:7710".to_owned());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let tenant = Rule::new("tenant").max_wait(Duration::from_millis(100));
    let settings = Settings::new(coordinator).node("axum-example").rule(tenant);
    let limits = Client::start(&settings)?;

    let app = Router::new()
        .route("/", get(async || "served\n"))
        .layer(TollgateLayer::new(limits, by_tenant));
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app).await?;
    Ok(())
}
