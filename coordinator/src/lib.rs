//! The coordinator: leases capacity to Envoys.
//!
//! All decisions are made in `tollgate-core`; this crate carries them out. From top to bottom, each
//! module using only those below it: [`server`] puts everything together, [`api`] serves clients and
//! operators, [`leases`] owns the lease tables, [`config`] reads the configuration, [`catalog`] holds the
//! limits in force, [`cluster`] elects masters, [`observe`] and [`net`] carry logs, metrics and bytes.
//!
//! **Architecture invariant:** only the driver touches a lease table, so there is no lock and no
//! order of events but that of its queue.

#![forbid(unsafe_code)]

pub mod api;
pub mod catalog;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod leases;
pub mod net;
pub mod observe;
pub mod server;
pub mod wire;
