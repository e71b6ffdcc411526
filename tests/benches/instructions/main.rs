//! Operations of the wasm filter by callback: `just bench-instructions [rules] [functions]`.
//!
//! Each module, as Envoy loads it, gets a counter in each of its functions and runs in an interpreter
//! against a host of proxy-wasm that lends what is asked for. Time is virtual, so the figures do not depend
//! on the machine. An operation is an instruction of wasm for which a compiler makes code: not the
//! locals and constants. `rules` compares conditions and keys. `functions` also names the functions in which they are.

#![allow(clippy::print_stdout, reason = "a report for people")]

mod counted;
mod course;
mod host;
mod request;
mod rules;
mod vm;

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use tollgate_tests::artifact;
use tollgate_tests::filter::{TENANT_HEADER, by_tenant};

use crate::counted::CountedModule;
use crate::course::{CALLBACKS, Profile, measure};
use crate::vm::Cost;

/// Tenants whose requests come in turn.
const TENANTS: u64 = 100;
/// Tokens a second of each lease, as of `just bench-proxy`.
const LEASE: f64 = 10_000.0;
/// Requests of the measurement: ten seconds.
const MEASURED: u64 = 100_000;
/// The same for rules, some of which take long: half a second.
const MEASURED_OF_RULES: u64 = 5_000;
/// Functions that are named.
const NAMED: usize = 30;
/// Headers of the variants with three.
const THREE: [&str; 3] = [TENANT_HEADER, "x-user", "x-plan"];

/// A module with its configuration.
struct Variant {
    name: &'static str,
    module: PathBuf,
    configuration: String,
}

fn main() -> Result<()> {
    if is_asked_for("rules") {
        return print_rules();
    }
    let mut profiles = Vec::new();
    for variant in variants()? {
        let module = CountedModule::of(&variant.module)?;
        let profile = measure(&module, &variant.configuration, MEASURED)?;
        if is_asked_for("functions") {
            print_functions(variant.name, &module, &profile);
        }
        profiles.push((variant.name, profile));
    }
    print_table(&profiles);
    Ok(())
}

fn is_asked_for(argument: &str) -> bool {
    std::env::args().any(|given| given == argument)
}

fn variants() -> Result<Vec<Variant>> {
    let rules = THREE.map(|header| json!({"name": header, "key": {"header": header}}));
    let three = by_tenant(&json!({"scopes": rules}));
    let headers = artifact::baseline_filter("bench_header_filter")?;
    let filter = artifact::filter()?;
    let variant = |name, module: &PathBuf, configuration: String| Variant {
        name,
        module: module.clone(),
        configuration,
    };
    Ok(vec![
        variant(
            "empty",
            &artifact::baseline_filter("bench_empty_filter")?,
            String::new(),
        ),
        variant("one header", &headers, TENANT_HEADER.to_owned()),
        variant(
            "**Tollgate**, one scope",
            &filter,
            by_tenant(&json!({})).to_string(),
        ),
        variant("three headers", &headers, THREE.join(",")),
        variant("**Tollgate**, three scopes", &filter, three.to_string()),
    ])
}

/// Prints what each rule costs, beside the first.
fn print_rules() -> Result<()> {
    println!("| rule | operations | × | calls of the host |\n|---|---|---|---|");
    let module = CountedModule::of(&artifact::filter()?)?;
    let mut base = None;
    for (name, rule) in rules::rules() {
        let configuration = by_tenant(&json!({"scopes": [rule]})).to_string();
        let profile = measure(&module, &configuration, MEASURED_OF_RULES)?;
        let cost = profile.plain_cost();
        let operations = cost.operations() as f64 / profile.plain as f64;
        let times = operations / *base.get_or_insert(operations);
        let calls = each(cost.calls(), profile.plain);
        println!("| {name} | {operations:.0} | {times:.1} | {calls} |");
        if is_asked_for("functions") {
            print_functions(name, &module, &profile);
        }
    }
    Ok(())
}

fn print_table(profiles: &[(&str, Profile)]) {
    let row = |name: &str, cell: &dyn Fn(&Profile) -> String| {
        let cells: Vec<String> = profiles.iter().map(|(_, profile)| cell(profile)).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    let names: Vec<&str> = profiles.iter().map(|(name, _)| *name).collect();
    println!("| | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for (at, callback) in CALLBACKS.into_iter().enumerate() {
        row(&format!("`{callback}`"), &|profile| {
            let of = |cost: &Cost| each(cost.operations(), profile.plain);
            profile.callbacks[at]
                .as_ref()
                .map_or_else(|| "–".to_owned(), of)
        });
    }
    row("**a request from the token cache**", &|profile| {
        format!(
            "**{}**",
            each(profile.plain_cost().operations(), profile.plain)
        )
    });
    row("draws, ticks and answers, spread", &|profile| {
        format!("{:.0}", profile.spread())
    });
    row("entries into the VM", &|profile| {
        each(profile.plain_cost().entries, profile.plain)
    });
    row("calls of the host", &|profile| {
        each(profile.plain_cost().calls(), profile.plain)
    });
    row("the same, all in all", &|profile| {
        let mut all = profile.plain_cost();
        all += &profile.drawing;
        all += &profile.housekeeping;
        format!("{:.2}", all.calls() as f64 / profile.requests as f64)
    });
    row("requests that draw", &|profile| {
        let drawing = profile.requests - profile.plain;
        format!("{:.1} %", 100.0 * drawing as f64 / profile.requests as f64)
    });
}

/// The part of each of so many requests.
fn each(sum: u64, requests: u64) -> String {
    format!("{:.0}", sum as f64 / requests as f64)
}

/// Prints the functions with the most operations of a request from the token cache, and of all.
fn print_functions(name: &str, module: &CountedModule, profile: &Profile) {
    let plain = profile.plain_cost();
    let mut more = profile.drawing.clone();
    more += &profile.housekeeping;
    println!("\n{name}: operations of a request from the token cache");
    print_most(module, &plain, profile.plain);
    println!("\n{name}: operations of other requests, ticks and answers, spread");
    print_most(module, &more, profile.requests);
    println!("{:?}\n", more.host_calls);
}

fn print_most(module: &CountedModule, cost: &Cost, requests: u64) {
    let mut functions: Vec<_> = cost.by_function.iter().zip(&module.functions).collect();
    functions.sort_by(|a, b| b.0.cmp(a.0));
    for (operations, name) in functions.into_iter().take(NAMED) {
        if *operations > 0 {
            println!("{:10.1} {name}", *operations as f64 / requests as f64);
        }
    }
}
