//! Ports for servers that restart on the same port, or that must know each other's before they start.
//!
//! A port chosen by the kernel may go to any outgoing connection as soon as its server has ended. These
//! ports lie below the kernel's range (from 32768 on Linux).

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

const FIRST: u32 = 15_000;
const COUNT: u32 = 17_000;
/// Distance between the first ports of two test programs, which may run at the same time.
const STRIDE: u32 = 97;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns a free port on loopback that no other call in this process gets.
///
/// # Errors
/// When none is free.
pub fn free() -> Result<u16> {
    let begin = process::id().wrapping_mul(STRIDE);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..COUNT)
        .map(|_| begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)))
        .filter_map(|turn| u16::try_from(FIRST + turn % COUNT).ok())
        .find(is_free)
        .context("a free port")
}
