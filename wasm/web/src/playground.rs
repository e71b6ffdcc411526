//! Object that the page holds.

use std::time::Duration;

use tollgate_sim::simulation::live::EnvoyStatus;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::chart;
use crate::fleet::Fleet;
use crate::narration::{Scene, state_text};
use crate::settings::{CAPACITY, NAMES, Settings};
use crate::slider;

/// The most virtual time of one call: a page that was asleep does not catch up.
const ADVANCE_MAX: f64 = 5000.0;

/// A simulated fleet with knobs. Rates are requests per second; Envoys count from 0.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Playground {
    settings: Settings,
    fleet: Fleet,
}

/// Numbers of one Envoy. Rates are requests per second.
#[wasm_bindgen]
#[derive(Clone, Debug)]
pub struct EnvoyRow {
    /// Requests that come.
    pub wants: f64,
    /// Its lease.
    pub has: f64,
    /// Requests that went on in the last second.
    pub admitted: f64,
    /// Requests that were refused in the last second.
    pub refused: f64,
    /// Position of its slider.
    pub position: f64,
    /// Whether it is cut off.
    #[wasm_bindgen(js_name = isCut)]
    pub is_cut: bool,
    /// Whether it has a lease.
    #[wasm_bindgen(js_name = isLeased)]
    pub is_leased: bool,
    name: &'static str,
    state: String,
}

// === impl Playground ===

#[wasm_bindgen]
impl Playground {
    /// Returns the fleet of the settings in an address's part behind `#`, at its start.
    #[wasm_bindgen(constructor)]
    pub fn new(hash: &str) -> Self {
        let settings = Settings::parse(hash);
        let fleet = Fleet::new(&settings);
        Self { settings, fleet }
    }

    /// Starts anew, with the default settings.
    pub fn reset(&mut self) {
        *self = Self::new("");
    }

    /// Starts anew with so many Envoys and the present settings.
    #[wasm_bindgen(js_name = setCount)]
    pub fn set_count(&mut self, count: usize) {
        self.settings.resize(count);
        self.fleet = Fleet::new(&self.settings);
    }

    /// Returns the settings as text, for an address.
    pub fn hash(&self) -> String {
        self.settings.to_string()
    }

    /// Lets so many milliseconds of virtual time pass.
    pub fn advance(&mut self, millis: f64) {
        let millis = if millis.is_nan() {
            0.0
        } else {
            millis.clamp(0.0, ADVANCE_MAX)
        };
        let time = Duration::from_secs_f64(millis / 1000.0);
        self.fleet.advance(time, &self.settings);
    }

    /// Returns the seconds since the start.
    pub fn elapsed(&self) -> f64 {
        self.fleet.elapsed().as_secs_f64()
    }

    /// Returns the number of Envoys.
    pub fn count(&self) -> usize {
        self.settings.envoys.len()
    }

    /// Returns the numbers of an Envoy.
    pub fn row(&self, envoy: usize) -> Option<EnvoyRow> {
        let chosen = self.settings.envoys.get(envoy)?;
        let status = self.fleet.envoy(envoy);
        let outcome = self.fleet.outcome(envoy);
        Some(EnvoyRow {
            wants: chosen.demand,
            has: status.has,
            admitted: outcome.admitted,
            refused: outcome.refused,
            position: slider::position_of(chosen.demand, self.demand_max()),
            is_cut: chosen.is_cut,
            is_leased: status.lease_left.is_some(),
            name: NAMES.get(envoy)?,
            state: state_text(&status),
        })
    }

    /// Moves the slider of an Envoy's demand to a position from 0 to 100.
    #[wasm_bindgen(js_name = moveDemand)]
    pub fn move_demand(&mut self, envoy: usize, position: f64) {
        let rate = slider::rate_at(position, self.demand_max());
        self.settings.set_demand(envoy, rate);
        self.fleet.set_demand(envoy, rate);
    }

    /// Cuts an Envoy off, or connects it.
    pub fn cut(&mut self, envoy: usize, is_cut: bool) {
        if let Some(chosen) = self.settings.envoys.get_mut(envoy) {
            chosen.is_cut = is_cut;
            self.fleet.cut(envoy, is_cut);
        }
    }

    /// Stops the coordinator, or starts a new one, which learns first.
    #[wasm_bindgen(js_name = stopCoordinator)]
    pub fn stop_coordinator(&mut self, is_stopped: bool) {
        self.settings.is_stopped = is_stopped;
        self.fleet.stop_coordinator(is_stopped);
    }

    /// Puts a new coordinator in the place of the present one.
    #[wasm_bindgen(js_name = restartCoordinator)]
    pub fn restart_coordinator(&mut self) {
        self.stop_coordinator(true);
        self.stop_coordinator(false);
    }

    /// Returns whether the coordinator is stopped.
    #[wasm_bindgen(js_name = isStopped)]
    pub fn is_stopped(&self) -> bool {
        self.settings.is_stopped
    }

    /// Returns the capacity.
    pub fn capacity(&self) -> f64 {
        self.settings.capacity
    }

    /// Returns the position of the capacity's slider.
    #[wasm_bindgen(js_name = capacityPosition)]
    pub fn capacity_position(&self) -> f64 {
        slider::position_of(self.settings.capacity, CAPACITY[1])
    }

    /// Moves the slider of the capacity to a position from 0 to 100.
    #[wasm_bindgen(js_name = moveCapacity)]
    pub fn move_capacity(&mut self, position: f64) {
        let capacity = slider::rate_at(position, CAPACITY[1]);
        self.settings.set_capacity(capacity);
        self.fleet.change_limit(&self.settings);
    }

    /// Returns the name of the algorithm.
    pub fn algorithm(&self) -> String {
        self.settings.algorithm_name().to_owned()
    }

    /// Divides by the algorithm of that name. False if there is none.
    #[wasm_bindgen(js_name = setAlgorithm)]
    pub fn set_algorithm(&mut self, name: &str) -> bool {
        let is_known = self.settings.set_algorithm(name);
        self.fleet.change_limit(&self.settings);
        is_known
    }

    /// Returns the headroom in percent.
    pub fn headroom(&self) -> f64 {
        self.settings.headroom * 100.0
    }

    /// Sets the headroom in percent.
    #[wasm_bindgen(js_name = setHeadroom)]
    pub fn set_headroom(&mut self, percent: f64) {
        self.settings.set_headroom(percent / 100.0);
        self.fleet.change_limit(&self.settings);
    }

    /// Returns the safe capacity.
    pub fn safe(&self) -> f64 {
        self.settings.safe
    }

    /// Sets the safe capacity.
    #[wasm_bindgen(js_name = setSafe)]
    pub fn set_safe(&mut self, rate: f64) {
        self.settings.set_safe(rate);
        self.fleet.change_limit(&self.settings);
    }

    /// Returns the sum of all leases.
    pub fn leased(&self) -> f64 {
        let envoys = 0..self.count();
        envoys.map(|envoy| self.fleet.envoy(envoy).has).sum()
    }

    /// Returns the sum of the requests that went on in the last second.
    pub fn admitted(&self) -> f64 {
        let last = self.fleet.history().last();
        last.map_or(0.0, |point| point.admitted)
    }

    /// Returns the sentences that say how the fleet stands, one a line.
    pub fn sentences(&self) -> String {
        let envoys = 0..self.count();
        let envoys: Vec<EnvoyStatus> = envoys.map(|envoy| self.fleet.envoy(envoy)).collect();
        let scene = Scene {
            settings: &self.settings,
            coordinator: self.fleet.coordinator(),
            envoys: &envoys,
        };
        scene.sentences().join("\n")
    }

    /// Returns the last minute as the content of an SVG element.
    pub fn chart(&self) -> String {
        chart::draw(self.fleet.history(), self.elapsed())
    }

    /// Returns the largest demand that a slider offers: twice the capacity.
    fn demand_max(&self) -> f64 {
        2.0 * self.settings.capacity
    }
}

// === impl EnvoyRow ===

#[wasm_bindgen]
impl EnvoyRow {
    /// Returns its name.
    #[wasm_bindgen(getter)]
    pub fn name(&self) -> String {
        self.name.to_owned()
    }

    /// Returns its state in a few words.
    #[wasm_bindgen(getter)]
    pub fn state(&self) -> String {
        self.state.clone()
    }
}
