//! What a request that passes is told of its limits: as the worker's last draw found the bucket,
//! less what it has spent since, for to look again would cost a read of shared data per request.

use super::{Target, Targets, Verdict, Worker, entry};
use crate::host::Host;
use crate::refusal::Refusal;
use crate::standing::{Standing, notes};

impl<H: Host> Worker<H> {
    /// Leaves the limits of the stream at hand to its response, if it goes on and the
    /// configuration asks for it.
    #[inline]
    pub(super) fn tell_standing(&mut self, targets: &Targets, verdict: Verdict) {
        if self.config.admitted_headers.is_any() && verdict == Verdict::Pass {
            self.note_standing(targets);
        }
    }

    #[cold]
    fn note_standing(&mut self, targets: &Targets) {
        let mut known = Vec::with_capacity(targets.len);
        for target in targets.as_slice() {
            if let Some(standing) = self.standing(*target) {
                known.push((target.table, standing));
            }
        }
        let named = |(table, standing): &(u16, Standing)| {
            let rule = Refusal::Missing {
                rule: usize::from(*table),
            };
            (self.refuser(rule).rule, *standing)
        };
        let rules: Vec<_> = known.iter().map(named).collect();
        for (name, value) in notes(self.config.admitted_headers, &rules) {
            self.host.note(name, &value);
        }
    }

    fn standing(&mut self, target: Target) -> Option<Standing> {
        let entry = entry(&mut self.tables, target)?;
        let drawn = entry.standing.as_deref()?;
        Some(Standing {
            left: drawn.left.saturating_add(entry.cache.left()),
            ..*drawn
        })
    }
}
