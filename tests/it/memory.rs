//! A worker's VM, or the process that has the module, stays small with ten thousand tenants, and does not grow under further load.

use std::env;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{Build, by_tenant};
use tollgate_tests::wait;

use crate::cardinality::send;
use crate::test_context::{TestContext, run_test, s};

const TENANTS: u64 = 10_000;
const BYTES_MAX: u64 = 16 << 20;
/// Growth allowed once all tenants are known: a few steps of the allocator.
const GROWTH_MAX: u64 = 1 << 20;
/// The same for a whole Envoy, whose connections take memory as well.
const GROWTH_OF_PROCESS_MAX: u64 = 6 << 20;
/// Number of requests after all tenants are known; `TOLLGATE_SOAK` sets another one.
const SOAK: u64 = 20_000;
/// Each tenant has a slot, until ten seconds after its last request.
const LIMITS: &str = "limits:\n  - match: \"tenant/*\"\n    \
                      requests: {rate: 0.01, burst: 1000, refresh: 5s, lease: 30s}\n";

#[test]
fn ten_thousand_tenants_fit_into_sixteen_megabytes_and_a_soak_adds_nothing() {
    run_test(
        "ten_thousand_tenants_fit_into_sixteen_megabytes",
        stays_small,
    );
}

async fn stays_small(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({"max_scopes": 20_000}));
    let envoy = test.envoy("envoy", 1, &coordinator, &plugin).await?;
    let empty = memory(&envoy).await?;
    // All of a VM is the filter's; of a process, what it has grown by is.
    let (base, growth_max) = match Build::under_test()? {
        Build::Wasm => (0, GROWTH_MAX),
        Build::Native => (empty, GROWTH_OF_PROCESS_MAX),
    };
    // Twice, because a scope's state is complete only after its first answer.
    for _ in 0..2 {
        send(&envoy, 0..TENANTS).await?;
    }
    tokio::select! {
        met = all_have_slots(&envoy) => met?,
        error = keep_sending(&envoy) => return Err(error),
    }
    let full = memory(&envoy).await?;
    let soak = env::var("TOLLGATE_SOAK").map_or(Ok(SOAK), |requests| requests.parse())?;
    let mut refused = 0;
    for _ in 0..soak / TENANTS {
        refused += send(&envoy, 0..TENANTS).await?.1;
    }
    let soaked = memory(&envoy).await?;
    let overflow = envoy.stat("wasmcustom.tollgate.overflow").await?;
    eprintln!(
        "it has {empty} B at its start, {full} B with {TENANTS} tenants, {soaked} B after {soak} requests"
    );
    eprintln!("Envoy has {} B in all", envoy.process.memory_bytes()?);
    eprintln!("{refused} refused, {overflow} shared the overflow");
    assert_eq!(overflow, 0, "each tenant had a slot");
    assert!(soaked.saturating_sub(base) <= BYTES_MAX, "{soaked} B");
    assert!(
        soaked.saturating_sub(full) <= growth_max,
        "{full} B grew to {soaked} B"
    );
    Ok(())
}

async fn all_have_slots(envoy: &Envoy) -> Result<()> {
    wait::until("all tenants to have slots", s(60.0), async || {
        let used = envoy.stat("wasmcustom.tollgate.slots_used").await?;
        let safe = envoy.stat("wasmcustom.tollgate.safe_mode").await?;
        ensure!(
            used >= TENANTS && safe == 0,
            "{used} slots, {safe} without a coordinator"
        );
        Ok(())
    })
    .await
}

/// Sends requests of all tenants, until one fails.
async fn keep_sending(envoy: &Envoy) -> anyhow::Error {
    loop {
        if let Err(error) = send(envoy, 0..TENANTS).await {
            return error;
        }
    }
}

/// Memory of the largest VM, which each worker reports once a second, or of the process.
async fn memory(envoy: &Envoy) -> Result<u64> {
    if Build::under_test()? == Build::Native {
        return envoy.process.memory_bytes();
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    wait::until("a report of memory", s(5.0), async || {
        let bytes = envoy.stat("wasmcustom.tollgate.vm_memory_bytes").await?;
        ensure!(bytes > 0, "no worker has reported");
        Ok(bytes)
    })
    .await
}
