//! Priority bands of a limit that clients draw of.

use super::{DrawingMember, MemberDraws, ShortMembers};
use crate::lease::{Band, Priority};
use crate::units::{Instant, Tokens};

/// Draws of clients of several priorities, of one limit. Each band is a member that is entitled to what the higher ones
/// leave, but for their guaranteed minimums.
#[derive(Debug, Default)]
pub(crate) struct DrawingBands {
    bands: [MemberDraws; Priority::COUNT],
    short_bands: ShortMembers,
}

// === impl DrawingBands ===

impl DrawingBands {
    /// The band of a client that draws of a limit with `burst`, of which `band.wants` is its part.
    pub(crate) fn member(
        &mut self,
        now: Instant,
        band: &Band,
        burst: Tokens,
    ) -> Option<DrawingMember<'_>> {
        let level = band.priority.level();
        let draws = self.bands.get_mut(usize::from(level))?;
        let key = (level.into(), band.subclients.get().into());
        let part = (band.wants.as_rate(), burst);
        Some(DrawingMember::new(
            now,
            key,
            part,
            draws,
            &mut self.short_bands,
        ))
    }

    /// Notes that a client of the band has drawn `tokens` of a limit with `burst`.
    pub(crate) fn note_granted(
        &mut self,
        now: Instant,
        band: &Band,
        tokens: Tokens,
        burst: Tokens,
    ) {
        if let Some(draws) = self.bands.get_mut(usize::from(band.priority.level())) {
            draws.note_granted(now, tokens, band.wants.as_rate(), burst);
        }
    }
}
