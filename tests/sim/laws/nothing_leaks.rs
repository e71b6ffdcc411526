//! Every waiting request is in a wait queue and ends once: it goes on, leaves, or is answered when
//! its time is over. The requests of one member end in the order in which they came. The process
//! counts as many permits as its workers have, also after a worker's VM has trapped.

use super::Law;
use crate::fleet::Fleet;

pub(crate) struct NothingLeaks;

impl Law for NothingLeaks {
    fn name(&self) -> &'static str {
        "nothing leaks"
    }

    fn check(&mut self, fleet: &Fleet) -> Result<(), String> {
        fleet.simulation.touched_clients().try_for_each(|client| {
            let counts = client.check_counts();
            counts.map_err(|broken| format!("{}: {broken}", client.name))
        })
    }
}
