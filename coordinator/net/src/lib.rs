//! Transport of the coordinator: TLS, the serving loop and its connection limits, channels to other
//! coordinators, the generated services, clocks, and reading of files that may block.

#![forbid(unsafe_code)]

pub mod channels;
pub mod clock;
pub mod connections;
pub mod files;
pub mod tls;
pub mod wire;
