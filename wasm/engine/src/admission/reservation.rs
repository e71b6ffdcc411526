//! Tokens that requests reserve, of rules of which only their end tells the cost.
//!
//! The obvious way is to charge at the end alone. Then whoever aborts pays nothing, and hundreds pass at once of which
//! the first uses all. So a request takes an estimate at its beginning, and its end settles the difference.

use tollgate_core::units::Tokens;

use super::{Admission, Request, Target, entry};
use crate::config::Estimate;

/// Tokens that a request takes of the scopes of one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    rule: u16,
    tokens: Tokens,
}

// === impl Request ===

impl Request {
    /// Returns the tokens that the request takes of each scope of `rule`, in all its passes.
    pub(crate) fn whole_cost(&self, rule: u16) -> Tokens {
        let mut reservations = self.reservations.iter();
        let reservation = reservations.find(|reservation| reservation.rule == rule);
        reservation.map_or(self.cost, |reservation| reservation.tokens)
    }

    /// Makes the request take `most` tokens of the scopes of `rule`, if it was to take more of an estimate. Returns
    /// whether it was.
    pub(super) fn reserve_less(&mut self, rule: u16, most: Tokens) -> bool {
        let mut reservations = self.reservations.iter_mut();
        let larger =
            reservations.find(|reservation| reservation.rule == rule && reservation.tokens > most);
        larger.is_some_and(|reservation| {
            reservation.tokens = most;
            true
        })
    }
}

// === impl Admission ===

impl Admission {
    /// Notes what a request takes of `target`, the scope of a rule whose cost is known only at the end.
    #[cold]
    pub(crate) fn reserve(&mut self, request: &mut Request, target: Target, estimate: Estimate) {
        request.has_final_cost = true;
        // One that costs nothing passes.
        if request.cost == Tokens::ZERO {
            return;
        }
        let entry = entry(&mut self.tables, target);
        let tokens = match estimate {
            Estimate::Request => return,
            Estimate::Tokens(tokens) => tokens,
            Estimate::Usual => {
                let usual = entry.as_ref().map_or(0, |entry| entry.usual_cost());
                Tokens::from_whole(usual.into()).max(Tokens::ONE)
            }
        };
        let tokens = entry.map_or(tokens, |entry| entry.capped(tokens));
        request.reservations.push(Reservation {
            rule: target.rule,
            tokens,
        });
    }
}
