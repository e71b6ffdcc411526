//! Rules: the first parts of scope ids, and what holds for their scopes.

use std::time::Duration;

use tollgate_core::client::{Mode, Policy};
use tollgate_core::lease::Priority;
use tollgate_core::units::{Capacity, Tokens};
use tollgate_engine::{Estimate, Overflow, RuleConfig, Shape};

use crate::settings_error::SettingsError;

/// The longest name, in bytes.
const NAME_LEN_MAX: usize = 40;
/// The longest wait for a turn, or for a debt.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Scope rule, such as `tenant` for scopes like `tenant/acme`. The limits themselves are in the
/// coordinator.
///
/// ```
/// use std::time::Duration;
/// use tollgate_client::{Mode, Rule};
///
/// // Requests of tenants: up to 20 per second without a lease, and a queue of at most 300 ms.
/// let tenant = Rule::new("tenant")
///     .safe_capacity(20.0)
///     .max_wait(Duration::from_millis(300));
/// // Model tokens, of which the number is known at the end only.
/// let tokens = Rule::new("tokens")
///     .final_cost()
///     .max_debt(Duration::from_secs(30));
/// // A limit on trial, which refuses nobody.
/// let trial = Rule::new("user").enforced(0).no_lease(Mode::Optimistic);
/// # let _ = (tenant, tokens, trial);
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    safe: f64,
    no_lease: Mode,
    first_lease_wait: Duration,
    max_wait: Duration,
    priority: u8,
    enforced: u8,
    final_cost: Option<Estimate>,
    max_debt: Duration,
}

// === impl Rule ===

impl Rule {
    /// Returns a rule called `name`: 1 to 40 of a-z, 0-9, `_` and `-`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            safe: 10.0,
            no_lease: Mode::Safe,
            first_lease_wait: Duration::from_millis(250),
            max_wait: Duration::ZERO,
            priority: Priority::default().level(),
            enforced: 100,
            final_cost: None,
            max_debt: Policy::default().max_debt,
        }
    }

    /// Sets the requests per second (or in flight) that this process lets pass for a scope without a
    /// lease, as long as no coordinator has said otherwise; 10 by default.
    #[must_use]
    pub fn safe_capacity(mut self, per_second: f64) -> Self {
        self.safe = per_second;
        self
    }

    /// Sets what passes without a valid lease: the safe capacity by default.
    #[must_use]
    pub fn no_lease(mut self, mode: Mode) -> Self {
        self.no_lease = mode;
        self
    }

    /// Sets the longest time that a scope's first requests wait for the first answer of a coordinator;
    /// 250 ms by default.
    #[must_use]
    pub fn first_lease_wait(mut self, time: Duration) -> Self {
        self.first_lease_wait = time;
        self
    }

    /// Lets requests beyond the limit wait for their turn, for at most a minute. By default they are
    /// refused.
    #[must_use]
    pub fn max_wait(mut self, time: Duration) -> Self {
        self.max_wait = time;
        self
    }

    /// Sets the priority band of this process's requests, 0 to 15: higher ones get capacity first.
    #[must_use]
    pub fn priority(mut self, band: u8) -> Self {
        self.priority = band;
        self
    }

    /// Sets the percentage of refusals that have an effect. With 0 the rule only counts and logs
    /// (shadow mode).
    #[must_use]
    pub fn enforced(mut self, percent: u8) -> Self {
        self.enforced = percent;
        self
    }

    /// Has the cost of requests told at their end, by [`Permit::settle`](crate::Permit::settle): what is more than
    /// they took becomes a debt, what is less comes back. One whose permit is dropped has cost what it took.
    #[must_use]
    pub fn final_cost(mut self) -> Self {
        self.final_cost = Some(Estimate::Request);
        self
    }

    /// The same, and has requests take so many tokens at their beginning, or what a bucket can hold if that is less,
    /// whatever they take of other rules.
    #[must_use]
    pub fn estimate(mut self, tokens: u64) -> Self {
        self.final_cost = Some(Estimate::Tokens(Tokens::from_whole(tokens)));
        self
    }

    /// The same with as many as requests of the scope usually turn out to have cost.
    #[must_use]
    pub fn usual_estimate(mut self) -> Self {
        self.final_cost = Some(Estimate::Usual);
        self
    }

    /// Sets the most that may be owed for costs that are told at the end, as a time at the present rate:
    /// so long the next request may have to wait. 10 s by default, a minute at most.
    #[must_use]
    pub fn max_debt(mut self, time: Duration) -> Self {
        self.max_debt = time;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        let wrong = |field, value: String, rule: &str| {
            Err(SettingsError {
                field,
                value,
                rule: rule.to_owned(),
            })
        };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        let len = self.name.len();
        if !(1..=NAME_LEN_MAX).contains(&len) || !self.name.bytes().all(plain) {
            return wrong(
                "rule",
                format!("{:?}", self.name),
                "must be 1 to 40 of a-z, 0-9, _ and -",
            );
        }
        if Capacity::try_from_f64(self.safe).is_err() {
            let rule = "must be a number of requests per second, not below 0";
            return wrong("safe_capacity", self.safe.to_string(), rule);
        }
        for (field, time) in [("max_wait", self.max_wait), ("max_debt", self.max_debt)] {
            if time > WAIT_MAX {
                return wrong(field, format!("{time:?}"), "must be a minute at most");
            }
        }
        if self.enforced > 100 {
            return wrong(
                "enforced",
                self.enforced.to_string(),
                "must be 0 to 100 percent",
            );
        }
        if Priority::new(self.priority).is_none() {
            return wrong("priority", self.priority.to_string(), "must be 0 to 15");
        }
        Ok(())
    }

    pub(crate) fn config(&self, call_timeout: Duration) -> RuleConfig {
        let shape = Shape {
            max_wait: self.max_wait,
            max_waiting: usize::MAX,
        };
        RuleConfig {
            name: self.name.clone(),
            policy: Policy {
                no_lease: self.no_lease,
                safe: Capacity::try_from_f64(self.safe).unwrap_or(Capacity::ZERO),
                first_lease_wait: self.first_lease_wait,
                call_timeout,
                priority: Priority::new(self.priority).unwrap_or_default(),
                max_debt: self.max_debt,
                ..Policy::default()
            },
            enforced: self.enforced,
            on_overflow: Overflow::Share,
            final_cost: self.final_cost,
            shape: (!self.max_wait.is_zero()).then_some(shape),
            marks: false,
        }
    }
}
