//! Members of a limit that have drawn less than their share, and drew in vain.

use crate::units::Instant;

/// Members that drew in vain lately, of those that have drawn less than their share: the last two, so that each
/// member can tell whether there is another one.
#[derive(Debug, Default)]
pub(crate) struct ShortMembers([ShortMember; 2]);

/// Member that drew in vain, by its hash or its priority, and the time until which others leave tokens to it.
#[derive(Clone, Copy, Debug, Default)]
struct ShortMember {
    hash: u64,
    until: Instant,
}

// === impl ShortMembers ===

impl ShortMembers {
    /// Notes that the member of `hash` drew in vain.
    pub(super) fn note(&mut self, hash: u64, until: Instant) {
        let [last, before] = &mut self.0;
        if last.hash != hash {
            *before = *last;
        }
        *last = ShortMember { hash, until };
    }

    /// Whether tokens are to be left to another member than that of `hash`.
    pub(super) fn has_others(&self, now: Instant, hash: u64) -> bool {
        let mut members = self.0.iter();
        members.any(|member| member.hash != hash && member.until > now)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn the_last_two_members_are_known_for_a_time() {
        let at = |secs| Instant::ZERO.saturating_add(Duration::from_secs(secs));
        let mut short = ShortMembers::default();
        assert!(!short.has_others(at(0), 7));
        short.note(1, at(10));
        assert!(short.has_others(at(0), 7));
        assert!(!short.has_others(at(0), 1), "itself");
        assert!(!short.has_others(at(10), 7), "over");
        short.note(2, at(5));
        short.note(2, at(6));
        assert!(short.has_others(at(0), 1));
        assert!(short.has_others(at(0), 2));
        short.note(3, at(20));
        assert!(!short.has_others(at(6), 3), "the first one is forgotten");
    }
}
