//! Clients of the coordinators.

use std::fmt;
use std::sync::Arc;

use tollgate_core::units::Tokens;
use tollgate_engine::ScopeLevel;

use crate::charge::Charge;
use crate::coordinators::Coordinators;
use crate::driver::Driver;
use crate::error::AcquireError;
use crate::permit::Permit;
use crate::settings::Settings;
use crate::settings_error::SettingsError;
use crate::transport::Transport;
use crate::worker::{Answer, Outcome, Shared, Worker};

/// Rate limits of this process; clones share them.
///
/// A process needs one client. It leases capacity for the scopes that are in use, and decides on each
/// request by itself, in memory. When the last clone and the last permit have gone, so does its task;
/// its leases then expire.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// Request that waits. One that is dropped leaves its queue.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    stream: Option<u32>,
}

// === impl Client ===

impl Client {
    /// Starts a client of the coordinators in `settings`. Connections are opened when they are needed;
    /// until a coordinator answers, safe capacities hold.
    ///
    /// # Errors
    /// If a setting breaks a rule.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(settings: &Settings) -> Result<Self, SettingsError> {
        let coordinators = Coordinators::new(settings)?;
        Self::start_with(settings, coordinators)
    }

    /// Starts a client that asks for leases by `transport`; the addresses in `settings` have no meaning.
    ///
    /// # Errors
    /// If a setting breaks a rule.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start_with(
        settings: &Settings,
        transport: impl Transport,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|error| SettingsError {
            field: "the machine's source of random numbers",
            value: "unusable".to_owned(),
            rule: error.to_string(),
        })?;
        let shared = Arc::new(Shared::new(Worker::new(settings, random)));
        tokio::spawn(Driver::new(&shared, transport).run());
        Ok(Self { shared })
    }

    /// Takes `cost` tokens of `scope`, such as `tenant/acme`. Waits only for a scope's first lease, and for
    /// the request's turn where the rule lets requests wait.
    ///
    /// ```
    /// use tollgate_client::{Client, Rule, Settings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // No coordinator is there, so a request per second passes: the safe capacity.
    /// let tenant = Rule::new("tenant").safe_capacity(1.0);
    /// let limits = Client::start(&Settings::new("http://127.0.0.1:1").rule(tenant))?;
    ///
    /// let permit = limits.acquire("tenant/acme", 1).await?;
    /// // ... the work of the request ...
    /// drop(permit);
    ///
    /// let error = limits.acquire("tenant/acme", 1).await.unwrap_err();
    /// let refused = error.refused().expect("a limit is reached");
    /// assert_eq!(refused.reason(), "tenant/requests");
    /// assert!(refused.retry_after().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a limit is reached, or the scope is none.
    pub async fn acquire(&self, scope: &str, cost: u64) -> Result<Permit, AcquireError> {
        self.admit(&Charge::of(scope).cost(cost)).await
    }

    /// Takes what a request is charged for: of all its scopes, or of none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_client::{AcquireError, Charge, Client, Permit};
    ///
    /// /// Waits for at most 100 ms until both the tenant and the user may send five messages.
    /// async fn may_send(limits: &Client, tenant: &str, user: &str) -> Result<Permit, AcquireError> {
    ///     let charge = Charge::of(format!("tenant/{tenant}"))
    ///         .and(format!("user/{user}"))
    ///         .cost(5)
    ///         .max_wait(Duration::from_millis(100));
    ///     limits.admit(&charge).await
    /// }
    /// # let _ = may_send;
    /// ```
    ///
    /// # Errors
    /// If a limit is reached, or a scope is none.
    pub async fn admit(&self, charge: &Charge) -> Result<Permit, AcquireError> {
        let answer = self.decide(charge, true)?;
        let outcome = match answer {
            Answer::Now(outcome) => outcome,
            Answer::Later(stream, receiver) => {
                let mut waiting = Waiting {
                    shared: &self.shared,
                    stream: Some(stream),
                };
                let outcome = receiver.await;
                waiting.stream = None;
                outcome.map_err(|_| AcquireError::Closed)?
            }
        };
        self.permit(outcome)
    }

    /// Does the same without ever waiting.
    ///
    /// # Errors
    /// If a limit is reached, or a scope is none.
    pub fn try_admit(&self, charge: &Charge) -> Result<Permit, AcquireError> {
        match self.decide(charge, false)? {
            Answer::Now(outcome) => self.permit(outcome),
            // A request whose longest wait is nothing is decided on at once.
            Answer::Later(stream, _) => {
                self.shared.lock().end(stream, None);
                Err(AcquireError::Closed)
            }
        }
    }

    /// Returns how the limits of requests of a scope stand in this process: its own first, then that of
    /// the group that it belongs to. Takes nothing and counts no attempt; a scope that is not in use
    /// tells of its fallback.
    ///
    /// # Errors
    /// If the scope is none.
    pub fn levels(&self, scope: &str) -> Result<Vec<ScopeLevel>, AcquireError> {
        self.shared.lock().levels(scope)
    }

    /// Gives back tokens of a scope that were taken and not used. Tokens beyond its burst are lost.
    ///
    /// # Errors
    /// If the scope is none.
    pub fn give_back(&self, scope: &str, tokens: u64) -> Result<(), AcquireError> {
        let tokens = Tokens::from_whole(tokens);
        self.shared.lock().give_back(scope, tokens)
    }

    /// Charges a scope for tokens that have been spent already, such as the cost of work that is done.
    /// Tokens beyond those that it has become a debt, which later requests wait for.
    ///
    /// # Errors
    /// If the scope is none.
    pub fn charge(&self, scope: &str, tokens: u64) -> Result<(), AcquireError> {
        let tokens = Tokens::from_whole(tokens);
        let mut worker = self.shared.lock();
        let charged = worker.charge(scope, tokens);
        if worker.is_hurried() {
            self.shared.hurry.notify_one();
        }
        charged
    }

    fn decide(&self, charge: &Charge, may_wait: bool) -> Result<Answer, AcquireError> {
        let mut worker = self.shared.lock();
        let answer = worker.decide(charge, may_wait);
        if worker.is_hurried() {
            self.shared.hurry.notify_one();
        }
        answer
    }

    fn permit(&self, outcome: Outcome) -> Result<Permit, AcquireError> {
        let admitted = outcome.map_err(AcquireError::Refused)?;
        Ok(Permit::new(&self.shared, admitted))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state of all scopes is long.
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream {
            self.shared.lock().end(stream, None);
        }
    }
}
