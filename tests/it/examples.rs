//! Every example in `envoy/examples` is started by the commands of its own page, prints what the page shows,
//! does what it claims, and has an Envoy whose log has neither warnings nor lines of the filter.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use tokio::task::{JoinSet, LocalSet};
use tollgate_tests::artifact;
use tollgate_tests::filter::Build;

use crate::test_context::{TestContext, run_test};

mod checkout;
mod claims;
mod page;
mod walk;

pub(crate) use checkout::Checkout;
pub(crate) use claims::{count, field};
pub(crate) use page::steps;
pub(crate) use walk::Walk;

use claims::CLAIMS;

/// The example that modules cannot be: its key is in a nested claim.
const OF_WASM: &str = "jwt";
/// The example whose Envoy lets a request pass that has no answer in 0.1 s: nobody else is busy meanwhile.
const ALONE: &str = "ratelimit";
/// Folder of the examples.
const FOLDER: &str = "envoy/examples";
/// Part of the last command that starts an example: it waits until Envoy serves.
const READY: &str = "/ready";

#[test]
fn every_example_does_what_its_page_says() {
    run_test("every_example_does_what_its_page_says", async |test| {
        LocalSet::new().run_until(walk_all(test)).await
    });
}

/// Starts all examples at once, and walks through them when all serve.
async fn walk_all(test: &TestContext) -> Result<()> {
    let mut starting = JoinSet::new();
    let build = Build::under_test()?;
    for (name, claim) in CLAIMS {
        let folder = format!("{FOLDER}/{name}");
        let paths = [folder.as_str(), "envoy/examples/upstream.py"];
        let checkout = Checkout::make(test.dir().join(name), &paths)?;
        let envoy = format!("{folder}/envoy.yaml");
        if build == Build::Native && (name == OF_WASM || !checkout.load_module(&envoy)?) {
            continue;
        }
        let mut steps = steps(&checkout.read(&format!("{folder}/README.md"))?);
        let ready = steps.iter().position(|step| step.command.contains(READY));
        let rest = steps.split_off(1 + ready.context("a command that waits for Envoy")?);
        let mut walk = Walk::begin(name, checkout, test.dir().to_owned())?;
        starting.spawn_local(async move {
            walk.run(&steps).await?;
            anyhow::Ok((walk, rest, claim))
        });
    }
    let mut started = Vec::new();
    while let Some(walk) = starting.join_next().await {
        started.push(walk??);
    }
    let (mut walking, mut failed) = (JoinSet::new(), Vec::new());
    started.sort_by_key(|(walk, ..)| walk.name() != ALONE);
    for (mut walk, rest, claim) in started {
        let is_alone = walk.name() == ALONE;
        walking.spawn_local(async move {
            walk.run(&rest).await?;
            walk.check(claim)?;
            walk.end_envoys().await
        });
        if is_alone && let Some(walked) = walking.join_next().await {
            failed.extend(walked?.err());
        }
    }
    while let Some(walked) = walking.join_next().await {
        failed.extend(walked?.err());
    }
    for error in &failed {
        eprintln!("{error:?}\n");
    }
    failed.pop().map_or(Ok(()), Err)
}

#[test]
fn every_folder_has_a_claim_and_is_listed() {
    let examples = artifact::workspace().join(FOLDER);
    let list = fs::read_to_string(examples.join("README.md")).unwrap();
    let mut folders = BTreeSet::new();
    for entry in fs::read_dir(&examples).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut link = format!("]({name})");
        if entry.path().is_dir() {
            link = format!("]({name}/README.md)");
            folders.insert(name.clone());
        }
        let listed = name == "README.md" || list.contains(&link);
        assert!(listed, "{FOLDER}/README.md does not list {name}");
    }
    let claimed: BTreeSet<String> = CLAIMS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, claimed, "tests/it/examples/claims.rs has them all");
}
