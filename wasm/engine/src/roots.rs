//! Configurations that an engine has at the same time, such as those of two listeners of a proxy: a
//! request is decided on by the settings of its own.

use crate::config::{EngineConfig, HostFailure, RuleId};
use crate::decision::Decision;
use crate::refusal::Refusal;
use crate::users::{InUse, Users};

/// Configuration of an engine that is in use.
#[derive(Clone, Debug)]
pub struct Root {
    /// The settings of its requests.
    pub settings: RootSettings,
    /// The ids of its rules, in order; none if it limits nothing.
    pub rules: Vec<RuleId>,
}

/// Settings of the requests of one configuration.
#[derive(Clone, Copy, Debug)]
pub struct RootSettings {
    pub(crate) host_failure: HostFailure,
    pub(crate) max_pending: usize,
    pub(crate) max_waiting: usize,
    pub(crate) reports_limits: bool,
    switch: u32,
}

/// Whether configurations limit anything, for requests that wait: these go on when theirs is switched
/// off.
///
/// An update is one more configuration, and no host says which one it replaces. It counts as that
/// with the same rules. Where both are in use, a request that begins to wait shows it, and from then
/// on requests of these rules are limited.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    switches: Vec<Switch>,
}

/// Switch of the configurations with the same rules.
#[derive(Debug, Default)]
struct Switch {
    rules: Vec<String>,
    is_on: bool,
    users: Users<()>,
}

// === impl RootSettings ===

impl RootSettings {
    /// Returns the decision on a request when the host or the shared table has failed.
    pub(crate) fn without_host(self) -> Decision {
        match self.host_failure {
            HostFailure::Open => Decision::Admit,
            HostFailure::Closed => Decision::Deny(Refusal::HostFailure),
        }
    }
}

// === impl Switches ===

impl Switches {
    /// Sets the switch of a configuration and returns the settings of its requests. A new switch takes the place of
    /// one that nobody uses any more.
    pub(crate) fn bind(&mut self, config: &EngineConfig, user: &InUse) -> RootSettings {
        let names = || config.rules.iter().map(|rule| &rule.name);
        let position = |is_it: &dyn Fn(&Switch) -> bool| self.switches.iter().position(is_it);
        let index = position(&|switch| switch.rules.iter().eq(names()))
            .or_else(|| position(&|switch| switch.users.is_empty()))
            .unwrap_or(self.switches.len());
        if index == self.switches.len() {
            self.switches.push(Switch::default());
        }
        if let Some(switch) = self.switches.get_mut(index) {
            switch.rules = names().cloned().collect();
            switch.is_on = config.enabled;
            switch.users.add(user, ());
        }
        RootSettings {
            host_failure: config.host_failure,
            max_pending: config.max_pending,
            max_waiting: config.max_waiting,
            reports_limits: config.reports_limits,
            switch: u32::try_from(index).unwrap_or(u32::MAX),
        }
    }

    /// Returns whether a request that waits is limited still.
    pub(crate) fn is_on(&self, root: RootSettings) -> bool {
        let switch = self.switches.get(root.switch as usize);
        switch.is_none_or(|switch| switch.is_on)
    }

    /// Notes that a request begins to wait, so that its configuration is in use.
    pub(crate) fn turn_on(&mut self, root: RootSettings) {
        if let Some(switch) = self.switches.get_mut(root.switch as usize) {
            switch.is_on = true;
        }
    }
}
