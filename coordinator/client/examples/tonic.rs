//! gRPC server whose calls are limited by tenant: gRPC's health service.
//!
//! With a coordinator at port 7710: `cargo run -p tollgate-client --example tonic`, then
//! `grpcurl -plaintext -H "x-tenant: acme" 127.0.0.1:8081 grpc.health.v1.Health/Check`.

use http::Request;
use tollgate_client::{Charge, Client, Rule, Settings, TollgateLayer};
use tonic::body::Body;
use tonic::transport::Server;

fn by_tenant(call: &Request<Body>) -> Option<Charge> {
    let tenant = call.headers().get("x-tenant")?.to_str().ok()?;
    Some(Charge::of(format!("tenant/{tenant}")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let coordinator =
        std::env::var("TOLLGATE").unwrap_or_else(|_| "http://127.0.0.1:7710".to_owned());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8081".to_owned());
    let settings = Settings::new(coordinator).node("tonic-example");
    let limits = Client::start(&settings.rule(Rule::new("tenant")))?;

    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(TollgateLayer::new(limits, by_tenant))
        .add_service(health)
        .serve(address.parse()?)
        .await?;
    Ok(())
}
