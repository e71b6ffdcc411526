//! A worker's VM stays small with ten thousand tenants, and grows no further however long they go on.

use std::env;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::by_tenant;
use tollgate_tests::wait;

use crate::cardinality::send;
use crate::scene::{Scene, play, s};

const TENANTS: u64 = 10_000;
const BYTES_MAX: u64 = 16 << 20;
/// What the allocator may still take when all tenants are known: a few of its steps.
const GROWTH_MAX: u64 = 1 << 20;
/// Requests after all tenants are known, unless `TOLLGATE_SOAK` says how many.
const SOAK: u64 = 20_000;
/// All have a slot of their own, and leases that are renewed all the time. A slot is given up when its bucket is
/// full again: here that takes minutes, however slow the machine is with ten thousand requests.
const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    \
                      requests: {rate: 0.01, burst: 1000, refresh: 5s, lease: 30s}\n";

#[test]
fn ten_thousand_tenants_fit_into_sixteen_megabytes_and_a_soak_adds_nothing() {
    play(
        "ten_thousand_tenants_fit_into_sixteen_megabytes",
        stays_small,
    );
}

async fn stays_small(scene: &Scene) -> Result<()> {
    let coordinator = scene.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({"max_scopes": 20_000}));
    let envoy = scene.envoy("envoy", 1, &coordinator, &plugin).await?;
    let empty = memory(&envoy).await?;
    // Twice: the second time everything about a scope is known that there is to know.
    for _ in 0..2 {
        send(&envoy, 0..TENANTS).await?;
    }
    wait::until("all tenants to have leases", s(60.0), async || {
        let used = envoy.stat("wasmcustom.tollgate.slots_used").await?;
        let safe = envoy.stat("wasmcustom.tollgate.safe_mode").await?;
        ensure!(
            used >= TENANTS && safe == 0,
            "{used} slots, {safe} without a lease"
        );
        Ok(())
    })
    .await?;
    let full = memory(&envoy).await?;
    let soak = env::var("TOLLGATE_SOAK").map_or(Ok(SOAK), |requests| requests.parse())?;
    let mut refused = 0;
    for _ in 0..soak / TENANTS {
        refused += send(&envoy, 0..TENANTS).await?.1;
    }
    let soaked = memory(&envoy).await?;
    let overflow = envoy.stat("wasmcustom.tollgate.overflow").await?;
    eprintln!(
        "the VM has {empty} B at its start, {full} B with {TENANTS} tenants, {soaked} B after {soak} requests"
    );
    eprintln!("Envoy has {} B in all", envoy.process.memory_bytes()?);
    eprintln!("{refused} refused, {overflow} shared the overflow");
    assert_eq!(overflow, 0, "each had a slot of its own");
    assert!(soaked <= BYTES_MAX, "{soaked} B");
    assert!(soaked - full <= GROWTH_MAX, "{full} B grew to {soaked} B");
    Ok(())
}

/// The memory of the largest VM, once the latest is known: a worker tells it within a second.
async fn memory(envoy: &Envoy) -> Result<u64> {
    tokio::time::sleep(Duration::from_millis(1200)).await;
    wait::until("a figure", s(5.0), async || {
        let bytes = envoy.stat("wasmcustom.tollgate.vm_memory_bytes").await?;
        ensure!(bytes > 0, "not told yet");
        Ok(bytes)
    })
    .await
}
