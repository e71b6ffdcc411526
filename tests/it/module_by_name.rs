//! Envoy finds the dynamic module by its name, as the page and the Debian package have it, whichever build is
//! under test.

use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tollgate_tests::connection::get_once;
use tollgate_tests::envoy::{Envoy, EnvoySpec};
use tollgate_tests::filter::TENANT_HEADER;
use tollgate_tests::{artifact, wait};

use crate::test_context::{TestContext, run_test, s};

const PAGE: &str = "docs/native.md";
const LIMITS: &str = "limits:\n  - match: \"*\"\n    requests: {rate: 100}\n";

#[test]
fn the_filter_of_the_page_is_found_by_the_modules_name() {
    run_test(
        "the_filter_of_the_page_is_found_by_the_modules_name",
        by_name,
    );
}

async fn by_name(test: &TestContext) -> Result<()> {
    let folder = test.dir().join("modules");
    std::fs::create_dir(&folder)?;
    symlink(artifact::native_filter()?, folder.join("libtollgate.so"))?;
    let coordinator = test.coordinator(LIMITS).await?;
    let filters = vec![filter_of_the_page()?];
    let mut spec = EnvoySpec::new("envoy", 1, test.upstream.address(), filters);
    spec.modules = Some(folder);
    let envoy = Envoy::start(test.dir(), &spec.asking(coordinator.grpc())).await?;
    let answer = get_once(envoy.address(), "/", &[(TENANT_HEADER, "acme")]).await?;
    assert_eq!(answer.status, 200, "{answer:?}");
    wait::until("a lease", s(5.0), async || {
        let leases = coordinator.leases("tenant/acme").await?;
        ensure!(leases.is_some(), "the scope is unknown");
        Ok(())
    })
    .await
}

/// The first of the page's HTTP filters, which loads the module by its name.
fn filter_of_the_page() -> Result<Value> {
    let page = std::fs::read_to_string(artifact::workspace().join(PAGE))?;
    let (_, filters) = page
        .split_once("```yaml\nhttp_filters:")
        .context("filters")?;
    let filters = filters.split("```").next().unwrap_or_default();
    let filters: Value = serde_saphyr::from_str(&format!("http_filters:{filters}"))?;
    let filter = filters["http_filters"][0].clone();
    let module = &filter["typed_config"]["dynamic_module_config"];
    ensure!(module["name"] == "tollgate" && module.get("module").is_none());
    Ok(filter)
}
