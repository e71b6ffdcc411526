//! Pulsar's and Hermes' own algorithms on the demand of simulated fleets: `just bench-originals
//! [SCENARIO…]`.
//!
//! A limit can name `usage_share` and `max_rate`, which keep to the capacity. The algorithms as they
//! are in Pulsar and Hermes do not, and know no leases: the core has them as functions. Here these
//! divide what the Envoys of a scenario want, second by second, with reports that all arrive at once.
//! Reads the records that `tollgate simulate --report` has written: `NAME=SECONDS=FOLDER`, the folder
//! with one record for each algorithm, and the seconds between two rounds that are as frequent as the
//! leases' refreshes. All figures come from the same samples in the same way.

#![allow(clippy::print_stdout, reason = "a report for people")]

mod course;
mod hermes;
mod original;
mod pulsar;
mod score;

use std::path::Path;

use anyhow::{Context, Result, bail};

use self::course::Course;
use self::hermes::Hermes;
use self::original::{Original, Played};
use self::pulsar::Pulsar;
use self::score::Score;

/// Seconds between two rounds in Pulsar, and in Hermes.
const PULSAR_ROUND: u64 = 60;
const HERMES_ROUND: u64 = 30;

fn main() -> Result<()> {
    println!(
        "| scenario | algorithm | used of min(capacity, wants) | fairness | overshoot | most used, of the capacity | time to fair, mean | longest | messages |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    // Cargo adds `--bench`.
    let named = std::env::args().skip(1);
    for named in named.filter(|name| !name.starts_with('-')) {
        let [name, often, folder] = named.split('=').collect::<Vec<_>>()[..] else {
            bail!("{named}: is not NAME=SECONDS=FOLDER");
        };
        let often = often.parse().context("the seconds of a round")?;
        compare(name, often, Path::new(folder))?;
    }
    Ok(())
}

/// Prints the rows of one scenario.
fn compare(scenario: &str, often: u64, folder: &Path) -> Result<()> {
    let row = |algorithm: &str, course: &Course, played: &Played| {
        println!(
            "| `{scenario}` | {algorithm} | {} |",
            Score::of(course, played)
        );
    };
    let mut own = Vec::new();
    for algorithm in ["fair_share", "usage_share", "max_rate"] {
        let course = Course::read(&folder.join(algorithm).join("report.json"))?;
        own.push((algorithm, course));
    }
    let [(_, course), ..] = &own[..] else {
        return Ok(());
    };
    let play =
        |mut original: Box<dyn Original>, every| original::play(course, &mut *original, every);
    let pulsar = |every| {
        play(
            Box::new(Pulsar::new(course.clients(), course.capacity, every)),
            every,
        )
    };
    let hermes = |every| {
        play(
            Box::new(Hermes::new(course.clients(), course.capacity)),
            every,
        )
    };
    row("Pulsar's, each minute", course, &pulsar(PULSAR_ROUND));
    row(&format!("Pulsar's, each {often} s"), course, &pulsar(often));
    row("Hermes', each 30 s", course, &hermes(HERMES_ROUND));
    row(&format!("Hermes', each {often} s"), course, &hermes(often));
    for (algorithm, course) in own.iter().rev() {
        row(&format!("`{algorithm}`"), course, &course.played());
    }
    Ok(())
}
