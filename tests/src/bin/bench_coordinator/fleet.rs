//! The clients of a row: who they are, what they want, and what they have.

use anyhow::{Context, Result, ensure};
use tollgate_proto::v1;

/// What each scope has to give, in requests per second.
pub(crate) const CAPACITY: f64 = 5000.0;

/// How many clients ask for how many scopes, and how many of them in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fleet {
    pub(crate) clients: usize,
    pub(crate) scopes: usize,
    pub(crate) scopes_per_call: usize,
}

/// One client, as far as one of its calls goes: a part of its scopes that it refreshes together.
#[derive(Debug)]
pub(crate) struct Caller {
    client: String,
    sequence: u64,
    leases: Vec<Lease>,
}

/// What a caller knows of one scope.
#[derive(Debug)]
struct Lease {
    scope: String,
    wants: f64,
    has: f64,
}

// === impl Fleet ===

impl Fleet {
    /// Names for scopes, as many as it takes.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        (0..).map(|scope| format!("tenant/{scope:04}"))
    }

    /// The callers, so that calls in this order go from client to client.
    pub(crate) fn callers(self) -> Vec<Caller> {
        let scopes: Vec<String> = Self::names().take(self.scopes).collect();
        self.callers_for(&scopes)
    }

    /// The same for these scopes.
    pub(crate) fn callers_for(self, scopes: &[String]) -> Vec<Caller> {
        let parts = scopes.chunks(self.scopes_per_call.max(1));
        parts
            .flat_map(|part| (0..self.clients).map(move |client| Caller::new(client, part)))
            .collect()
    }

    /// How many leases there are in all.
    pub(crate) fn leases(self) -> usize {
        self.clients * self.scopes
    }

    /// All that there is to lease, in requests per second.
    pub(crate) fn capacity(self) -> f64 {
        CAPACITY * self.scopes as f64
    }
}

// === impl Caller ===

impl Caller {
    fn new(client: usize, scopes: &[String]) -> Self {
        let lease = |scope: &String| Lease {
            scope: scope.clone(),
            wants: CAPACITY + spread(client),
            has: 0.0,
        };
        Self {
            client: format!("envoy-{client:06}/{:08x}", client.wrapping_mul(0x9e37_79b9)),
            sequence: 0,
            leases: scopes.iter().map(lease).collect(),
        }
    }

    /// The next call: what the client has, and that it wants more than there is. Wants sway a
    /// little, so that each refresh moves the client in the order of the books.
    pub(crate) fn request(&mut self) -> v1::RefreshRequest {
        self.sequence += 1;
        let sway = (self.sequence % 100) as f64;
        let scope = |lease: &Lease| v1::ScopeRequest {
            scope: lease.scope.clone(),
            units: vec![v1::UnitRequest {
                unit: v1::Unit::Requests.into(),
                sequence: self.sequence,
                has: lease.has,
                wants: lease.wants + sway,
                ..v1::UnitRequest::default()
            }],
        };
        v1::RefreshRequest {
            client_id: self.client.clone(),
            scopes: self.leases.iter().map(scope).collect(),
            incarnation: 1,
            term: 0,
        }
    }

    /// Takes the leases of an answer.
    ///
    /// # Errors
    /// When a scope has none: a refusal would cost less and spoil the comparison.
    pub(crate) fn take(&mut self, answer: &v1::RefreshResponse) -> Result<()> {
        ensure!(
            answer.scopes.len() == self.leases.len(),
            "a scope without an answer"
        );
        for (lease, scope) in self.leases.iter_mut().zip(&answer.scopes) {
            ensure!(
                scope.scope == lease.scope,
                "{} in the place of {}",
                scope.scope,
                lease.scope
            );
            let unit = scope.units.first();
            let unit =
                unit.with_context(|| format!("{} was refused: {:?}", lease.scope, scope.error))?;
            ensure!(
                unit.sequence == self.sequence,
                "an answer to another request"
            );
            lease.has = unit.lease.as_ref().context("no lease")?.capacity;
        }
        Ok(())
    }

    /// How many leases a call refreshes.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// What the client has of all the scopes together, in requests per second.
    pub(crate) fn sum_has(&self) -> f64 {
        self.leases.iter().map(|lease| lease.has).sum()
    }
}

// === free functions ===

/// Tells the wants of clients apart: up to once the capacity, the same for the same client.
fn spread(client: usize) -> f64 {
    let scrambled = (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    CAPACITY * scrambled as f64 / f64::from(1 << 20)
}
