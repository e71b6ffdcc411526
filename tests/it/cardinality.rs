//! Unknown tenants cost bounded memory and share the overflow scope.

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};

use crate::test_context::{TestContext, run_test};

const NAMES: u64 = 20_000;
const MAX_SCOPES: u64 = 1000;
const CONNECTIONS: u64 = 16;
/// Growth allowed for Envoy itself with two workers: far less than the cost of 10 000 scopes of about 500
/// bytes in each worker and in shared data.
const GROWTH_MAX: u64 = 4 << 20;
const LIMITS: &str = "limits:\n  - match: \"tenant/~overflow\"\n    \
                      requests: {rate: 10, burst: 5}\n  - match: \"*\"\n    requests: {rate: 100}\n";

#[test]
fn random_tenant_names_cost_bounded_memory() {
    run_test("random_tenant_names_cost_bounded_memory", bounded);
}

async fn bounded(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let plugin = by_tenant(&json!({"max_scopes": MAX_SCOPES}));
    let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
    let memory = || envoy.process.memory_bytes();
    send(&envoy, 0..NAMES / 20).await?;
    let few = memory()?;
    send(&envoy, NAMES / 20..NAMES / 2).await?;
    let half = memory()?;
    let (admitted, refused) = send(&envoy, NAMES / 2..NAMES).await?;
    let full = memory()?;
    eprintln!("Envoy has {few} B after 1000 names, {half} B after 10000, {full} B after {NAMES}");
    eprintln!("of the last 10000, {admitted} were admitted and {refused} refused");
    assert_eq!(admitted + refused, NAMES / 2, "all were answered");
    assert!(
        full.saturating_sub(half) <= GROWTH_MAX,
        "memory is flat once the table is full"
    );
    assert!(
        full.saturating_sub(few) <= 2 * GROWTH_MAX,
        "the table was nearly full before"
    );
    let used = envoy.stat("wasmcustom.tollgate.slots_used").await?;
    assert!(
        used <= MAX_SCOPES + 1,
        "{used} slots of {MAX_SCOPES} and the overflow's"
    );
    assert!(
        envoy.stat("wasmcustom.tollgate.overflow").await? > 0,
        "overflow is counted"
    );
    // Nearly all of the second half had no slot and shared 10 requests a second.
    assert!(
        refused > admitted,
        "the overflow scope has a limit of its own"
    );
    ensure!(
        coordinator.leases("tenant/~overflow").await?.is_some(),
        "the overflow scope is leased"
    );
    Ok(())
}

/// Sends one request for each name; returns the numbers of admitted and refused requests.
pub(crate) async fn send(envoy: &Envoy, names: std::ops::Range<u64>) -> Result<(u64, u64)> {
    let mut tasks = JoinSet::new();
    for first in 0..CONNECTIONS {
        let to = envoy.address();
        let mine = (names.start + first..names.end).step_by(usize::try_from(CONNECTIONS)?);
        tasks.spawn(async move {
            let (mut admitted, mut refused) = (0, 0);
            let mut connection = Connection::open(to).await?;
            for name in mine {
                // Spread over the whole range of names, not one prefix.
                let name = format!("{:016x}", name.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                match connection
                    .status_of(&get("/", &[(TENANT_HEADER, &name)]))
                    .await?
                {
                    200 => admitted += 1,
                    429 => refused += 1,
                    other => anyhow::bail!("answered {other}"),
                }
            }
            Ok::<(u64, u64), anyhow::Error>((admitted, refused))
        });
    }
    let (mut admitted, mut refused) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let (more_admitted, more_refused) = done??;
        admitted += more_admitted;
        refused += more_refused;
    }
    Ok((admitted, refused))
}
