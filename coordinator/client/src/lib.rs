//! Fair-share rate limits for services without Envoy.
//!
//! A [`Client`] leases capacity from Tollgate's coordinators and decides on each request in memory, as
//! the Envoy filter does: with the same engine, the same leases, and the same words when it refuses. So
//! services and Envoys share the limits of a tenant, exactly, and no request waits for a network.
//!
//! ```no_run
//! use tollgate_client::{Client, Rule, Settings};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::new("http://tollgate.infra:7710")
//!     .node("billing")
//!     .rule(Rule::new("tenant"));
//! let limits = Client::start(&settings)?;
//!
//! let permit = limits.acquire("tenant/acme", 1).await?;
//! // ... the work of the request ...
//! drop(permit);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! The limits are in the coordinator's file, by scope: `tenant/acme` is the key `acme` of the rule
//! `tenant`. A scope may have limits of requests per second, of requests in flight, or both, and a group
//! beside them. [`Charge`] is for requests of several scopes, or that cost more than one token.
//!
//! # Waiting
//!
//! [`Client::acquire`] waits at most [`Rule::first_lease_wait`] for the first lease of a scope. Beyond
//! the limit it refuses at once, or waits for the request's turn for up to [`Rule::max_wait`]. A task
//! that is dropped meanwhile leaves its queue. [`Client::try_admit`] never waits.
//!
//! # Without coordinators
//!
//! Leases are used until they expire; then [`Rule::no_lease`] says what passes: by default the safe
//! capacity, the coordinator's own if it has sent one.
//!
//! # HTTP and gRPC servers
//!
//! [`TollgateLayer`] is a [`tower`](https://docs.rs/tower) layer, for axum, tonic and all others that are
//! built on it. Refusals are 429 with the header fields and the body that the Envoy filter sends, or
//! RESOURCE_EXHAUSTED with details for a gRPC call. A request counts as in flight until its response has
//! been sent.

#![forbid(unsafe_code)]

mod charge;
mod client;
mod coordinators;
mod driver;
mod error;
mod host;
mod layer;
mod permit;
mod response;
mod rule;
mod settings;
mod settings_error;
mod transport;
mod wire;
mod worker;

pub use charge::Charge;
pub use client::Client;
pub use error::{AcquireError, Refused};
pub use layer::{LimitedService, TollgateLayer};
pub use permit::Permit;
pub use response::ResponseBody;
pub use rule::Rule;
pub use settings::Settings;
pub use settings_error::SettingsError;
pub use tollgate_core::client::Mode;
pub use tollgate_core::lease::{ClientRun, ResourceId};
pub use tollgate_core::message::{Refresh, Refreshed, Release};
pub use tollgate_engine::{Formats, LimitStatus, ScopeLevel};
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};
pub use transport::Transport;
