//! A worker's VM that traps in mid-lease loses its streams and nothing else: leases and buckets are in
//! shared data.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::connection::{Connection, get_once};
use tollgate_tests::coordinator::Coordinator;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::faulty_upstream::FaultyUpstream;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant, tollgate_of};
use tollgate_tests::load::{Flow, Load};
use tollgate_tests::{trap, wait};

use crate::in_flight::{open_up_to, the_limit_is_known};
use crate::test_context::{TestContext, assert_near, print_course, run_wasm_test, s};

/// Reason why a module is not tested: its own tests let hooks panic.
const NO_VM: &str = "a module has no VM that could trap";

const RATE: f64 = 100.0;
/// Large enough to show a bucket that a reload refills.
const BURST: f64 = 300.0;
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100, burst: 300}\n";
/// Seconds of load at which a VM traps: after the first burst has passed, and far enough apart that
/// Envoy, which waits a second after it has loaded a VM, loads another at once.
const TRAPS: [f64; 3] = [5.0, 7.0, 9.0];

#[test]
fn a_vm_that_traps_in_mid_lease_finds_its_lease_and_its_bucket_again() {
    run_wasm_test(
        "a_vm_that_traps_in_mid_lease_finds_its_lease_and_its_bucket_again",
        NO_VM,
        recovers,
    );
}

async fn recovers(test: &TestContext) -> Result<()> {
    let coordinator = test.coordinator(LIMITS).await?;
    let envoy = envoy(test, 2, test.upstream.address(), &coordinator).await?;
    let load = Load::start([Flow::new(envoy.address(), "acme", 400.0)]);
    for at in TRAPS {
        load.run_until(s(at)).await;
        trap_vm(&envoy).await?;
    }
    load.run_until(s(13.0)).await;
    let leases = coordinator.leases("tenant/acme").await?.context("leases")?;
    ensure!(
        leases.clients.len() == 1,
        "the process is one client: {leases:?}"
    );
    let loads = envoy.stats("vm_reload").await?;
    let record = load.stop().await?.remove(0);
    print_course("acme", &record);
    let total = record.total();
    eprintln!("{total:?} {loads:?}");

    // Any two seconds after the first burst admit the rate and the workers' token caches.
    let cached = f64::max(BURST / 4.0, 2.0);
    let windows = record.windows(s(4.0)..s(13.0), s(2.0));
    let most = windows.iter().copied().fold(0.0, f64::max) * 2.0;
    eprintln!("most in 2 s: {most}");
    conclude!(most <= 2.1 * RATE + cached, "{most} in 2 s: a second burst");
    let whole = record.admitted_per_second(s(4.0)..s(13.0));
    assert_near("with three traps, admitted/s", whole, RATE, 0.05);
    let after = record.admitted_per_second(s(10.0)..s(13.0));
    assert_near("after the traps, admitted/s", after, RATE, 0.05);
    let failed = total.failed as f64 / total.offered as f64;
    conclude!(failed <= 0.05, "{total:?}");
    Ok(())
}

#[test]
fn permits_of_a_lost_vm_are_free_again_after_their_time() {
    run_wasm_test(
        "permits_of_a_lost_vm_are_free_again_after_their_time",
        NO_VM,
        async |test: &TestContext| {
            let limits = "limits:\n  - match: \"*\"\n    requests: {rate: 1000000}\n    concurrency: {max: 10}\n";
            let upstream = FaultyUpstream::start().await?;
            let coordinator = test.coordinator(limits).await?;
            let envoy = envoy(test, 1, upstream.address(), &coordinator).await?;
            the_limit_is_known(&envoy).await?;
            let lost = open_all(envoy.address()).await?;
            trap_vm(&envoy).await?;
            // The new VM does not know the streams, but the permits of the lost one still count.
            let refused = get_once(envoy.address(), "/ok", &[(TENANT_HEADER, "acme")]).await?;
            ensure!(refused.status == 429, "{}", refused.status);
            ensure!(refused.header("tollgate-reason") == Some("tenant/concurrency"));
            let open = open_all(envoy.address()).await?;
            wait::until("only the new streams to be counted", s(5.0), async || {
                let count = envoy.stat("wasmcustom.tollgate.in_flight").await?;
                ensure!(count == 10, "{count} in flight");
                Ok(())
            })
            .await?;
            drop((lost, open));
            Ok(())
        },
    );
}

/// Opens streams up to the limit, and checks that one more is refused.
async fn open_all(to: SocketAddr) -> Result<Vec<tokio::net::TcpStream>> {
    let mut open = Vec::new();
    wait::until("ten to be in flight", s(20.0), async || {
        open_up_to(&mut open, 10, to).await
    })
    .await?;
    let refused = get_once(to, "/ok", &[(TENANT_HEADER, "acme")]).await?;
    ensure!(refused.status == 429, "{} beyond the limit", refused.status);
    Ok(open)
}

/// Traps the VM of the worker that gets the request, and waits until it is loaded again.
async fn trap_vm(envoy: &Envoy) -> Result<()> {
    let loaded = "wasm.tollgate.vm_reload_success";
    let before = envoy.stat(loaded).await?;
    let mut connection = Connection::open(envoy.address()).await?;
    let request = trap::request(TENANT_HEADER, "acme");
    // Envoy answers 503, or nothing.
    let answer = connection.status_of(&request).await;
    ensure!(
        answer.as_ref().is_ok_and(|status| *status == 503),
        "{answer:?}"
    );
    wait::until("the VM to be loaded again", s(5.0), async || {
        // Envoy reloads the VM at the next request to that worker, over the same connection.
        if !connection.is_reusable() {
            connection = Connection::open(envoy.address()).await?;
        }
        let plain = tollgate_tests::connection::get("/", &[(TENANT_HEADER, "acme")]);
        let _ = connection.status_of(&plain).await;
        let now = envoy.stat(loaded).await?;
        ensure!(now > before, "{loaded} is {now}");
        Ok(())
    })
    .await
}

async fn envoy(
    test: &TestContext,
    workers: u32,
    upstream: SocketAddr,
    coordinator: &Coordinator,
) -> Result<Envoy> {
    let module = trap::module(test.dir())?;
    let filters = vec![tollgate_of(&module, &by_tenant(&json!({})))];
    let spec = EnvoySpec::new("envoy", workers, upstream, filters);
    Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await
}
