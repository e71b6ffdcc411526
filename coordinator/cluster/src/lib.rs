//! Membership in a cluster of coordinators: the election of masters, and the connection to etcd.

#![forbid(unsafe_code)]

pub mod config;
pub mod election;
#[cfg(feature = "etcd")]
pub mod etcd;
