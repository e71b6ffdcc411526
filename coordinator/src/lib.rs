//! The coordinator: leases capacity to Envoys.
//!
//! What is decided is decided in `tollgate-core`. This crate carries it out: [`driver`] is the one
//! task that owns the books, [`grpc`], [`doorman`] and [`rest`] are the doors to it, [`config`] says what there
//! is to lease, and [`server`] puts them together.
//!
//! **Architecture invariant:** nothing but the driver touches the books, so there is no lock and
//! no order of events but that of its queue.

#![forbid(unsafe_code)]

pub mod auth;
pub mod catalog;
pub mod channels;
pub mod clock;
pub mod config;
pub mod connections;
pub mod doorman;
pub mod drains;
pub mod driver;
pub mod election;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod files;
pub mod grpc;
pub mod health;
pub mod keeper;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod parent;
pub mod quantity;
pub mod reload;
pub mod rest;
pub mod router;
pub mod server;
pub mod shards;
#[cfg(feature = "etcd")]
pub mod shared;
pub mod spec;
pub mod store;
pub mod survey;
pub mod tls;
pub mod trace;
pub mod view;
