//! At every instant the leases of a resource sum to at most its capacity: in the master's books, and
//! in what the clients use. A lowered capacity may be exceeded for one lease.

use super::Law;
use crate::world::World;

pub(crate) struct Law1;

impl Law for Law1 {
    fn name(&self) -> &'static str {
        "law 1, never more than the capacity"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let capacity = u128::from(world.capacity_max().as_micros());
        let used: u128 = world
            .processes()
            .iter()
            .map(|p| u128::from(p.holder.has(p.clock(world.now())).as_micros()))
            .sum();
        if used > capacity {
            return Err(format!("clients use {used} of {capacity} millionths"));
        }
        let Some(books) = world.books() else {
            return Ok(());
        };
        let sum: u128 = books
            .clients()
            .map(|client| u128::from(client.has.as_micros()))
            .sum();
        if sum != books.sum_has() {
            return Err(format!(
                "the books say {} but add up to {sum}",
                books.sum_has()
            ));
        }
        if sum > capacity {
            return Err(format!("{sum} of {capacity} millionths are lent"));
        }
        Ok(())
    }
}
