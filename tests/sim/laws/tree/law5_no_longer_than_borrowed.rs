//! The leases that a coordinator grants end no later than all leases that it ever had of its
//! parent. At that moment no client below has any of them left, even if coordinators have started
//! again meanwhile. But the leases of a snapshot do not age during its transfer.

use tollgate_core::units::Capacity;

use super::super::Law;
use super::facts;
use crate::borrowing::Borrowed;
use crate::fleet::Fleet;

pub(crate) struct Law5;

// === impl Law5 ===

impl Law for Law5 {
    fn name(&self) -> &'static str {
        "law 5, lent for no longer than borrowed"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        let facts = facts(fleet);
        for (i, coordinator) in facts.places().iter().enumerate().skip(1) {
            if facts.claims_safe(fleet.now(), i) {
                continue;
            }
            let name = &fleet.plan.scenario.coordinators[i].name;
            let ends = coordinator.borrowed_until.saturating_add(facts.held_up);
            for client in facts
                .clients_at(&fleet.simulation, i)
                .filter(|client| !facts.is_safe(client.envoy))
            {
                if client.has_at(ends) > Capacity::ZERO {
                    return Err(format!(
                        "{} has what {name} is lent until {ends:?} after that",
                        client.name
                    ));
                }
            }
            for child in facts.below(i) {
                let some = |lent: &&Borrowed| !lent.safe && lent.capacity > Capacity::ZERO;
                let lent = facts.place(child).borrowed.iter().filter(some);
                let last = lent.max_by_key(|lent| lent.until);
                if let Some(lent) = last.filter(|lent| lent.until > ends) {
                    let child = &fleet.plan.scenario.coordinators[child].name;
                    return Err(format!(
                        "{child} has {lent:?} of {name}, which has it until {ends:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
