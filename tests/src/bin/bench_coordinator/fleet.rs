//! Clients of a row with their wants and leases.

use anyhow::{Context, Result, ensure};
use tollgate_proto::v1;

/// Capacity of each scope, in requests per second.
pub(crate) const CAPACITY: f64 = 5000.0;

/// Numbers of clients, scopes, and scopes per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fleet {
    pub(crate) clients: usize,
    pub(crate) scopes: usize,
    pub(crate) scopes_per_call: usize,
}

/// The part of a client that makes one call: some of its scopes, refreshed together.
#[derive(Debug)]
pub(crate) struct Caller {
    client: String,
    sequence: u64,
    leases: Vec<Lease>,
}

/// Wants and lease of one scope.
#[derive(Debug)]
struct Lease {
    scope: String,
    wants: f64,
    has: f64,
}

// === impl Fleet ===

impl Fleet {
    /// Endless names of scopes.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        (0..).map(|scope| format!("tenant/{scope:04}"))
    }

    /// All callers, ordered so that consecutive calls are of different clients.
    pub(crate) fn callers(self) -> Vec<Caller> {
        let scopes: Vec<String> = Self::names().take(self.scopes).collect();
        self.callers_for(&scopes)
    }

    /// All callers for these scopes, in the order of [`Self::callers`].
    pub(crate) fn callers_for(self, scopes: &[String]) -> Vec<Caller> {
        let parts = scopes.chunks(self.scopes_per_call.max(1));
        parts
            .flat_map(|part| (0..self.clients).map(move |client| Caller::new(client, part)))
            .collect()
    }

    /// Number of leases.
    pub(crate) fn leases(self) -> usize {
        self.clients * self.scopes
    }

    /// Capacity of all scopes, in requests per second.
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

    /// Creates the next call, with what the client has and wants beyond the capacity. The wants vary a
    /// little, so that each refresh moves the client in the lease table's order.
    pub(crate) fn request(&mut self) -> v1::RefreshRequest {
        self.sequence += 1;
        let variation = (self.sequence % 100) as f64;
        let scope = |lease: &Lease| v1::ScopeRequest {
            scope: lease.scope.clone(),
            units: vec![v1::UnitRequest {
                unit: v1::Unit::Requests.into(),
                sequence: self.sequence,
                has: lease.has,
                wants: lease.wants + variation,
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

    /// Applies the leases of an answer.
    ///
    /// # Errors
    /// When a scope has none: a refusal would cost less and distort the comparison.
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

    /// Number of leases that a call refreshes.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Sum of the client's leases, in requests per second.
    pub(crate) fn sum_has(&self) -> f64 {
        self.leases.iter().map(|lease| lease.has).sum()
    }
}

// === free functions ===

/// Extra wants of a client, from none to the capacity, always the same for the same client.
fn spread(client: usize) -> f64 {
    let scrambled = (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    CAPACITY * scrambled as f64 / f64::from(1 << 20)
}
