//! The quickstart goes as its page says, from the README's first command to the last, and its files are short.

use std::fs;

use anyhow::{Context, Result, ensure};
use tollgate_tests::artifact;

use crate::examples::{Checkout, Walk, count, field, steps};
use crate::test_context::{TestContext, run_wasm_test};

/// Most lines for the filter in an Envoy configuration.
const FILTER_LINES_MAX: usize = 25;
/// Most commands from a checkout to a refused request.
const COMMANDS_MAX: usize = 10;
/// The page.
const PAGE: &str = "docs/quickstart.md";

#[test]
fn the_quickstart_goes_as_its_page_says() {
    run_wasm_test(
        "the_quickstart_goes_as_its_page_says",
        "the page says itself which build it loads",
        walk,
    );
}

async fn walk(test: &TestContext) -> Result<()> {
    let paths = [
        "envoy/quickstart/envoy.yaml",
        "envoy/quickstart/tollgate.yaml",
        "envoy/examples/upstream.py",
    ];
    let checkout = Checkout::make(test.dir().join("checkout"), &paths)?;
    let page = steps(&checkout.read(PAGE)?);
    let (first, rest) = page.split_at(commands_of_the_readme().len());
    let mut walk = Walk::begin("quickstart", checkout, test.dir().to_owned())?;
    walk.run(first).await?;
    walk.check(|walk| {
        let codes = walk.output("seq 20")?;
        ensure!(count(codes, "429") > 0, "{codes}");
        Ok(())
    })?;
    let gone = rest.iter().position(|step| step.command == "kill %1");
    let (served, rest) = rest.split_at(gone.context("the coordinator's end")?);
    walk.run(served).await?;
    walk.check_logs()?;
    walk.run(rest).await?;
    walk.check(|walk| {
        let pause: u64 = field(walk.output("-D -")?, "tollgate-pause-ms")?.parse()?;
        // At one token a second; more would be a debt.
        ensure!((1..=1000).contains(&pause), "{pause} ms");
        Ok(())
    })
}

#[test]
fn few_commands_of_the_readme_lead_to_a_refusal_as_the_page_has_them() {
    let readme = commands_of_the_readme();
    assert!(readme.len() <= COMMANDS_MAX, "{readme:?}");
    let page = steps(&read(PAGE)).into_iter().map(|step| step.command);
    assert_eq!(readme, page.take(readme.len()).collect::<Vec<_>>());
}

/// Commands of the README that lead to the first refused request.
fn commands_of_the_readme() -> Vec<String> {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Your first 429\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    steps(section)
        .into_iter()
        .map(|step| step.command)
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(artifact::workspace().join(path)).unwrap()
}

#[test]
fn the_filter_takes_few_lines() {
    let text = read("envoy/quickstart/envoy.yaml");
    let between: Vec<_> = text
        .lines()
        .skip_while(|line| !line.contains("- name: tollgate"))
        .take_while(|line| !line.contains("- name: envoy.filters.http.router"))
        .collect();
    assert!(!between.is_empty(), "the file has the filter");
    assert!(
        between.len() <= FILTER_LINES_MAX,
        "{} lines:\n{}",
        between.len(),
        between.join("\n")
    );
}
