//! The leases that a coordinator grants end no later than all leases that it ever had of its
//! parent. At that moment no client below has any of them left, even if coordinators have started
//! again meanwhile. But the leases of a snapshot do not age during its transfer.

use tollgate_core::units::Capacity;

use crate::laws::Law;
use crate::tree::World;
use crate::tree::place::Borrowed;

pub(crate) struct Law5;

impl Law<World> for Law5 {
    fn name(&self) -> &'static str {
        "law 5, lent for no longer than borrowed"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (i, place) in world.places().iter().enumerate().skip(1) {
            if world.claims_safe(i) {
                continue;
            }
            let ends = place
                .borrowed_until
                .saturating_add(world.scenario().held_up());
            for (p, _) in world.processes_at(i).filter(|(_, safe)| !safe) {
                if p.has(ends) > Capacity::ZERO {
                    let (id, place) = (p.id.as_str(), place.id.as_str());
                    return Err(format!(
                        "{id} has what {place} is lent until {ends:?} after that"
                    ));
                }
            }
            for child in world.below(i).map(|child| &world.places()[child]) {
                let some = |lent: &&Borrowed| !lent.safe && lent.capacity > Capacity::ZERO;
                let lent = child.borrowed.iter().filter(some);
                if let Some(lent) = lent
                    .max_by_key(|lent| lent.until)
                    .filter(|l| l.until > ends)
                {
                    let (id, place) = (child.id.as_str(), place.id.as_str());
                    return Err(format!(
                        "{id} has {lent:?} of {place}, which has it until {ends:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
