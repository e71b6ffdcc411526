//! Outcomes of requests, counted over the whole fleet.

/// Requests that went on and that were refused, of each scope, since the last sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    scopes: Vec<[u64; 2]>,
}

/// Place where processes count the outcomes of their requests.
#[derive(Debug)]
pub(crate) struct Outcomes<'a>(pub(crate) &'a mut Tally);

// === impl Tally ===

impl Tally {
    pub(crate) fn new(scopes: usize) -> Self {
        Self {
            scopes: vec![[0; 2]; scopes],
        }
    }

    /// Returns the requests of `scope` that went on, and those that were refused.
    pub(crate) fn of(&self, scope: usize) -> [u64; 2] {
        self.scopes[scope]
    }

    /// Returns the same for all scopes.
    pub(crate) fn sum(&self) -> [u64; 2] {
        let mut sum = [0; 2];
        for [admitted, refused] in &self.scopes {
            sum[0] += admitted;
            sum[1] += refused;
        }
        sum
    }

    pub(crate) fn clear(&mut self) {
        self.scopes.fill([0; 2]);
    }
}

// === impl Outcomes ===

impl Outcomes<'_> {
    pub(crate) fn admit(&mut self, scope: u32) {
        self.0.scopes[scope as usize][0] += 1;
    }

    pub(crate) fn refuse(&mut self, scope: u32) {
        self.0.scopes[scope as usize][1] += 1;
    }
}
