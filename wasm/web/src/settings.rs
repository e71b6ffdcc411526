//! Settings of the playground: what people choose, and its form in an address.

use std::fmt;

use tollgate_core::limit::Algorithm;

/// Names of the Envoys.
pub(crate) const NAMES: [&str; 6] = ["east", "west", "north", "south", "coast", "hills"];
/// The fewest Envoys.
pub(crate) const ENVOYS_MIN: usize = 2;
/// The smallest and the largest capacity.
pub(crate) const CAPACITY: [f64; 2] = [10.0, 1000.0];
/// The largest demand at one Envoy.
const DEMAND_MAX: f64 = 2000.0;

/// Choices of a person. Rates are requests per second.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) capacity: f64,
    pub(crate) algorithm: Algorithm,
    /// Part of the unwanted capacity that is lent all the same, from 0 to 1.
    pub(crate) headroom: f64,
    /// Safe capacity of each Envoy; at most the capacity counts.
    pub(crate) safe: f64,
    /// The Envoys in the order of their names.
    pub(crate) envoys: Vec<EnvoySettings>,
    pub(crate) is_stopped: bool,
}

/// Choices about one Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EnvoySettings {
    pub(crate) demand: f64,
    pub(crate) is_cut: bool,
}

// === impl Settings ===

impl Settings {
    /// Returns the settings of an address's part behind `#`; the defaults stand for what it does
    /// not say or says wrong.
    pub(crate) fn parse(hash: &str) -> Self {
        let mut settings = Self::default();
        let hash = hash.strip_prefix('#').unwrap_or(hash);
        for (name, value) in hash.split('&').filter_map(|field| field.split_once('=')) {
            settings.read(name, value);
        }
        settings
    }

    fn read(&mut self, name: &str, value: &str) {
        match name {
            "capacity" => self.set_capacity(number(value)),
            "algorithm" => {
                self.set_algorithm(value);
            }
            "headroom" => self.set_headroom(number(value) / 100.0),
            "safe" => self.set_safe(number(value)),
            "demand" => {
                let demands = value.split(',').take(NAMES.len());
                for (i, demand) in demands.enumerate() {
                    if self.envoys.len() <= i {
                        self.envoys.push(EnvoySettings::default());
                    }
                    self.set_demand(i, number(demand));
                }
                let count = value.split(',').count();
                self.resize(count);
            }
            "cut" => {
                for (envoy, known) in self.envoys.iter_mut().zip(NAMES) {
                    envoy.is_cut = value.split(',').any(|name| name == known);
                }
            }
            "coordinator" => self.is_stopped = value == "stopped",
            _ => {}
        }
    }

    /// Gives the fleet so many Envoys, within what is possible.
    pub(crate) fn resize(&mut self, count: usize) {
        let count = count.clamp(ENVOYS_MIN, NAMES.len());
        let newcomer = EnvoySettings {
            demand: 20.0,
            is_cut: false,
        };
        self.envoys.resize(count, newcomer);
    }

    pub(crate) fn set_capacity(&mut self, capacity: f64) {
        if capacity.is_finite() {
            self.capacity = capacity.clamp(CAPACITY[0], CAPACITY[1]);
        }
    }

    /// Takes the algorithm of that name; false if there is none.
    pub(crate) fn set_algorithm(&mut self, name: &str) -> bool {
        let mut names = Algorithm::NAMES.into_iter();
        let found = names.find(|(known, _)| *known == name);
        if let Some((_, algorithm)) = found {
            self.algorithm = algorithm;
        }
        found.is_some()
    }

    pub(crate) fn algorithm_name(&self) -> &'static str {
        self.algorithm.name()
    }

    pub(crate) fn set_headroom(&mut self, part: f64) {
        if part.is_finite() {
            self.headroom = part.clamp(0.0, 1.0);
        }
    }

    pub(crate) fn set_safe(&mut self, safe: f64) {
        if safe.is_finite() {
            self.safe = safe.clamp(0.0, CAPACITY[1]);
        }
    }

    /// Returns the safe capacity that counts.
    pub(crate) fn safe_in_force(&self) -> f64 {
        self.safe.min(self.capacity)
    }

    pub(crate) fn set_demand(&mut self, envoy: usize, demand: f64) {
        if let Some(envoy) = self.envoys.get_mut(envoy)
            && demand.is_finite()
        {
            envoy.demand = demand.clamp(0.0, DEMAND_MAX);
        }
    }

    /// Returns the sum of all demand.
    pub(crate) fn demand(&self) -> f64 {
        self.envoys.iter().map(|envoy| envoy.demand).sum()
    }
}

impl Default for Settings {
    fn default() -> Self {
        let envoy = |demand| EnvoySettings {
            demand,
            is_cut: false,
        };
        Self {
            capacity: 100.0,
            algorithm: Algorithm::FairShare,
            headroom: 0.5,
            safe: 10.0,
            envoys: [60.0, 40.0, 25.0, 10.0, 5.0].map(envoy).to_vec(),
            is_stopped: false,
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demands = self.envoys.iter().map(|envoy| envoy.demand.to_string());
        let demands: Vec<_> = demands.collect();
        let named = self.envoys.iter().zip(NAMES);
        let cut = named.filter(|(envoy, _)| envoy.is_cut);
        let cut: Vec<_> = cut.map(|(_, name)| name).collect();
        write!(
            f,
            "capacity={}&algorithm={}&headroom={}&safe={}&demand={}",
            self.capacity,
            self.algorithm_name(),
            (self.headroom * 100.0).round(),
            self.safe,
            demands.join(","),
        )?;
        if !cut.is_empty() {
            write!(f, "&cut={}", cut.join(","))?;
        }
        if self.is_stopped {
            f.write_str("&coordinator=stopped")
        } else {
            Ok(())
        }
    }
}

// === free functions ===

/// Returns the number that `text` is; NaN, which no setting takes, if it is none.
fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_their_text() {
        let mut settings = Settings::default();
        assert_eq!(Settings::parse(&settings.to_string()), settings);
        settings.set_capacity(250.0);
        assert!(settings.set_algorithm("static"));
        settings.set_headroom(0.25);
        settings.set_safe(7.5);
        settings.resize(6);
        settings.set_demand(5, 0.5);
        settings.envoys[1].is_cut = true;
        settings.is_stopped = true;
        let text = settings.to_string();
        assert!(text.contains("cut=west&coordinator=stopped"), "{text}");
        assert_eq!(Settings::parse(&format!("#{text}")), settings);
    }

    #[test]
    fn nonsense_in_an_address_changes_nothing_and_large_numbers_are_cut() {
        let nonsense = "#capacity=x&algorithm=&demand=a,,NaN,inf,-&safe=&headroom=NaN&&=&cut&z=1";
        assert_eq!(Settings::parse(nonsense), Settings::default());
        let large = Settings::parse("capacity=1e300&demand=1e300,-5,1,1,1,1,1,1,1&safe=-1");
        assert_eq!(large.capacity, CAPACITY[1]);
        assert_eq!(large.envoys.len(), NAMES.len());
        assert_eq!(
            (large.envoys[0].demand, large.envoys[1].demand),
            (2000.0, 0.0)
        );
        assert_eq!(large.safe, 0.0);
        assert_eq!(Settings::parse("demand=1").envoys.len(), ENVOYS_MIN);
    }
}
