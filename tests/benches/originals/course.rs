//! Recorded course of one scope in a simulation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::original::Played;

/// Wants of each Envoy over time, and the leases that the simulation gave it.
#[derive(Debug)]
pub(crate) struct Course {
    /// Seconds of the samples.
    pub(crate) times: Vec<u64>,
    pub(crate) capacity: f64,
    /// Of each sample, of each Envoy.
    pub(crate) wants: Vec<Vec<f64>>,
    has: Vec<Vec<f64>>,
    messages: u64,
}

/// The part of a report that is read.
#[derive(Deserialize)]
struct Record {
    figures: Figures,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Figures {
    messages: u64,
}

#[derive(Deserialize)]
struct Sample {
    at: f64,
    scopes: Vec<Scope>,
    clients: Vec<Client>,
}

#[derive(Deserialize)]
struct Scope {
    capacity: Option<f64>,
}

#[derive(Deserialize)]
struct Client {
    wants: f64,
    has: Option<f64>,
}

// === impl Course ===

impl Course {
    /// Reads the record of a run.
    ///
    /// # Errors
    /// If it cannot be read, or its first scope has no capacity.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let record: Record = serde_json::from_str(&text)?;
        let first = record.samples.first().context("no sample")?;
        let scope = first.scopes.first().context("no scope")?;
        let capacity = scope.capacity.context("the first scope has no capacity")?;
        let samples = &record.samples;
        ensure!(
            samples.iter().all(|sample| sample.at.fract() == 0.0),
            "samples must be taken at whole seconds"
        );
        let of = |value: fn(&Client) -> f64| {
            let samples = samples.iter();
            let samples = samples.map(|sample| sample.clients.iter().map(value).collect());
            samples.collect()
        };
        Ok(Self {
            times: samples.iter().map(|sample| sample.at as u64).collect(),
            capacity,
            wants: of(|client| client.wants),
            has: of(|client| client.has.unwrap_or_default()),
            messages: record.figures.messages,
        })
    }

    /// Returns the number of Envoys.
    pub(crate) fn clients(&self) -> usize {
        self.wants.first().map_or(0, Vec::len)
    }

    /// Returns the leases of the simulation itself.
    pub(crate) fn played(&self) -> Played {
        Played {
            has: self.has.clone(),
            messages: self.messages,
        }
    }
}
