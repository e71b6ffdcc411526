//! When demand is stable, what clients have is the max-min fair division of the capacity.
//!
//! Here the division is found by filling: everyone gets the same small amount again and again until
//! satisfied. Slow and obvious, and nothing like the tree in the core.

use super::Law;
use crate::world::World;

pub(crate) struct Law4;

impl Law for Law4 {
    fn name(&self) -> &'static str {
        "law 4, max-min fair"
    }

    fn finish(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        let wants: Vec<f64> = world.processes().iter().map(|p| p.wants(now)).collect();
        let shares = fill(&wants, world.limit().capacity.as_f64());
        for (p, share) in world.processes().iter().zip(shares) {
            let has = p.holder.has(p.clock(now)).as_f64();
            // One in a hundred, and one request per second, for the coarseness of demand.
            if has < share * 0.99 - 1.0 {
                return Err(format!("{} has {has}, its share is {share}", p.id.as_str()));
            }
        }
        Ok(())
    }
}

fn fill(wants: &[f64], capacity: f64) -> Vec<f64> {
    const STEPS: u32 = 100_000;
    let step = capacity / f64::from(STEPS);
    let mut shares = vec![0.0; wants.len()];
    let mut left = capacity;
    while left > 0.0 && shares.iter().zip(wants).any(|(share, want)| share < want) {
        for (share, want) in shares.iter_mut().zip(wants) {
            if *share < *want && left > 0.0 {
                let more = step.min(*want - *share).min(left);
                *share += more;
                left -= more;
            }
        }
    }
    shares
}
