//! Transport: TLS, the serving loop and its connection limits, channels to other coordinators, and
//! reading of files that may block.

pub mod channels;
pub mod connections;
pub mod files;
pub mod tls;
