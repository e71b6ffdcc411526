//! Unknown tenants cost bounded memory, and none is refused for want of a slot.

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tollgate_tests::connection::{Connection, get};
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};
use tollgate_tests::wait;

use crate::test_context::{TestContext, run_test, s};

const NAMES: u64 = 20_000;
/// Slots for a tenth of the names.
const MAX_SCOPES: u64 = 2000;
/// Names that come in a tenth of a second, at most. For so long a slot has something to lose, until its
/// bucket is full again.
const PORTION: u64 = MAX_SCOPES / 4;
const CONNECTIONS: u64 = 16;
/// Growth allowed for Envoy itself with two workers: far less than the cost of 10 000 scopes of about 500
/// bytes in each worker and in shared data.
const GROWTH_MAX: u64 = 4 << 20;
const RESOURCES: &str = "tollgate_resources{unit=\"requests\"}";
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100}\n";

#[test]
fn random_tenant_names_cost_bounded_memory_and_nobody_is_refused() {
    run_test(
        "random_tenant_names_cost_bounded_memory_and_nobody_is_refused",
        bounded,
    );
}

async fn bounded(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    // A busy machine answers late, and is waited for.
    let plugin = by_tenant(&json!({"max_scopes": MAX_SCOPES, "first_lease_wait_ms": 10_000}));
    let envoy = test.envoy("envoy", 2, &coordinator, &plugin).await?;
    let memory = || envoy.process.memory_bytes();
    let (mut answers, mut few) = ((0, 0), 0);
    for first in (0..NAMES).step_by(usize::try_from(PORTION)?) {
        if first == NAMES / 10 {
            few = memory()?;
        }
        let portion = send(&envoy, first..first + PORTION);
        let (portion, ()) = tokio::join!(portion, tokio::time::sleep(s(0.1)));
        let (admitted, refused) = portion?;
        answers = (answers.0 + admitted, answers.1 + refused);
    }
    let full = memory()?;
    eprintln!("Envoy has {few} B after 2000 names, {full} B after {NAMES}");
    assert_eq!(answers, (NAMES, 0), "admitted and refused");
    assert!(
        full.saturating_sub(few) <= 2 * GROWTH_MAX,
        "memory is flat once the table is full"
    );
    let stat = async |name: &str| envoy.stat(&format!("wasmcustom.tollgate.{name}")).await;
    let used = stat("slots_used").await?;
    assert!(used <= MAX_SCOPES, "{used} slots of {MAX_SCOPES}");
    assert_eq!(stat("overflow").await?, 0, "each had a slot");
    // The coordinator counts no lease of a name that has lost its slot.
    wait::until("leases to be released", s(10.0), async || {
        let leases = coordinator.metric(RESOURCES).await?;
        ensure!(leases <= MAX_SCOPES as f64, "{leases} resources are leased");
        Ok(())
    })
    .await
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
