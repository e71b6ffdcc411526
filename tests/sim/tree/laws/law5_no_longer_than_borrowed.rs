//! The leases that a coordinator grants end no later than all leases that it ever had of its
//! parent. At that moment no client below has any of them left, even if coordinators have started
//! again meanwhile. But the leases of a snapshot do not age during its transfer.

use tollgate_core::units::Capacity;

use crate::laws::Law;
use crate::tree::World;
use crate::tree::coordinator::Borrowed;

pub(crate) struct Law5;

impl Law<World> for Law5 {
    fn name(&self) -> &'static str {
        "law 5, lent for no longer than borrowed"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (i, coordinator) in world.coordinators().iter().enumerate().skip(1) {
            if world.claims_safe(i) {
                continue;
            }
            let ends = coordinator
                .borrowed_until
                .saturating_add(world.scenario().held_up());
            for (p, _) in world.processes_at(i).filter(|(_, safe)| !safe) {
                if p.has(ends) > Capacity::ZERO {
                    let (id, coordinator) = (p.id.as_str(), coordinator.id.as_str());
                    return Err(format!(
                        "{id} has what {coordinator} is lent until {ends:?} after that"
                    ));
                }
            }
            for child in world.below(i).map(|child| &world.coordinators()[child]) {
                let some = |lent: &&Borrowed| !lent.safe && lent.capacity > Capacity::ZERO;
                let lent = child.borrowed.iter().filter(some);
                if let Some(lent) = lent
                    .max_by_key(|lent| lent.until)
                    .filter(|l| l.until > ends)
                {
                    let (id, coordinator) = (child.id.as_str(), coordinator.id.as_str());
                    return Err(format!(
                        "{id} has {lent:?} of {coordinator}, which has it until {ends:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
