//! Account of what clients of one capacity use together.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Account of what clients of one capacity may have used: each uses all that it holds, until that ends.
pub(crate) struct Account {
    /// Requests per second of all together.
    capacity: f64,
    began: Instant,
    /// Time up to which `used` counts.
    at: Instant,
    held: BTreeMap<String, Held>,
    used: f64,
    /// The smallest difference so far between what was used and what there was.
    least: f64,
}

/// Rate that a client may use.
struct Held {
    rate: f64,
    until: Instant,
}

// === impl Account ===

impl Account {
    pub(crate) fn new(capacity: f64) -> Self {
        let now = Instant::now();
        Self {
            capacity,
            began: now,
            at: now,
            held: BTreeMap::new(),
            used: 0.0,
            least: 0.0,
        }
    }

    /// Notes that `client` holds `rate` from now on, until it is told otherwise, and not beyond `until`.
    pub(crate) fn hold(&mut self, client: &str, rate: f64, until: Instant) {
        self.advance(Instant::now());
        self.held.insert(client.to_owned(), Held { rate, until });
    }

    /// Notes that `client` uses nothing from now on.
    pub(crate) fn drop_held(&mut self, client: &str) {
        self.hold(client, 0.0, Instant::now());
    }

    /// The sum of what is held now.
    pub(crate) fn rate(&self) -> f64 {
        let now = Instant::now();
        let held = self.held.values().filter(|held| held.until > now);
        held.map(|held| held.rate).sum()
    }

    /// Forgets everything that was used before now; `passed` requests had passed by then.
    pub(crate) fn begin(&mut self, passed: u64) {
        self.advance(Instant::now());
        (self.began, self.used) = (self.at, 0.0);
        self.least = passed as f64;
    }

    /// The most by which use exceeded the capacity in any time that ends now. `passed` is the number of
    /// requests so far of those that hold nothing, but are counted one by one.
    pub(crate) fn excess(&mut self, passed: u64) -> f64 {
        self.advance(Instant::now());
        let there_was = self.capacity * (self.at - self.began).as_secs_f64();
        let difference = self.used + passed as f64 - there_was;
        self.least = self.least.min(difference);
        difference - self.least
    }

    fn advance(&mut self, now: Instant) {
        for held in self.held.values() {
            let time = held.until.min(now).saturating_duration_since(self.at);
            self.used += held.rate * time.as_secs_f64();
        }
        self.at = now;
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_finds_the_time_in_which_most_was_used() {
    let second = Duration::from_secs(1);
    let mut account = Account::new(100.0);
    account.hold("a", 60.0, Instant::now() + 3 * second);
    account.hold("b", 30.0, Instant::now() + 100 * second);
    assert_eq!(account.rate(), 90.0);
    sleep(second).await;
    assert!(account.excess(0).abs() < 1e-6, "ten of a hundred are left");
    assert!((account.excess(5) - 5.0).abs() < 1e-6, "at once");
    sleep(second).await;
    // Since the second before: 90 are held, and fifteen have passed.
    assert!((account.excess(15) - 5.0).abs() < 1e-6);
    sleep(3 * second).await;
    assert_eq!(account.rate(), 30.0, "one has ended");
    assert!(account.excess(15).abs() < 1e-6);
    account.drop_held("b");
    sleep(second).await;
    assert!((account.excess(135) - 20.0).abs() < 1e-6);
    account.begin(135);
    sleep(second).await;
    assert!(account.excess(235).abs() < 1e-6);
    assert!((account.excess(240) - 5.0).abs() < 1e-6);
}
