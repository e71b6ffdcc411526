//! Rules that events keep.

use std::collections::BTreeSet;

use super::{Check, EventSpec, join};
use crate::scenario::{Change, Cut, Deploy};

// === impl Check ===

impl Check<'_> {
    pub(super) fn event(&mut self, field: &str, event: &EventSpec) {
        self.ensure(
            event.at <= self.scenario.duration,
            &join(field, "at"),
            || {
                let end = self.scenario.duration.0;
                format!("{:?} is after the end, {end:?}", event.at.0)
            },
        );
        let (name, coordinator, envoys) = event.change.named();
        let field = &join(field, name);
        if let Some(coordinator) = coordinator {
            self.coordinator(&join(field, "coordinator"), coordinator);
        }
        if let Some(envoys) = envoys {
            self.selection(&join(field, "envoys"), envoys);
        }
        self.change(field, &event.change);
    }

    fn change(&mut self, field: &str, change: &Change) {
        match change {
            Change::Stop(stop) => {
                let both = stop.coordinator.is_some() && stop.envoys.is_some();
                self.ensure(!both, field, || {
                    "stops a coordinator or Envoys, not both".to_owned()
                });
            }
            Change::HandOver(left) => {
                self.shard(&join(field, "shard"), &left.coordinator, left.shard);
            }
            Change::LoseTerm(lost) => {
                self.shard(&join(field, "shard"), &lost.coordinator, lost.shard);
                let (term, elected, lasts) = (lost.term.0, lost.elected_after.0, lost.lasts.0);
                self.ensure(term < elected && elected <= lasts, field, || {
                    format!(
                        "term {term:?} < elected_after {elected:?} <= for {lasts:?} does not hold"
                    )
                });
            }
            Change::Deploy(deploy) => self.deploy(&join(field, "batch"), deploy),
            Change::Scale(scale) => self.group_name(&join(field, "group"), &scale.group),
            Change::Cut(cut) => self.cut(field, cut),
            Change::Demand(demand) => {
                let changes = [&demand.set, &demand.add, &demand.times];
                let count = changes.into_iter().flatten().count();
                self.ensure(count == 1, field, || {
                    "needs one of set, add, times".to_owned()
                });
            }
            Change::Limits(limits) => self.limits(field, Some(*limits)),
            Change::Crash(_) | Change::Kill(_) | Change::Trap(_) => {}
        }
    }

    fn shard(&mut self, field: &str, coordinator: &str, shard: Option<u16>) {
        let mut coordinators = self.scenario.coordinators.iter();
        let count = coordinators.find(|known| known.name == coordinator);
        let count = count.map_or(u16::MAX, |known| known.shards);
        if let Some(shard) = shard.filter(|shard| *shard >= count) {
            self.refuse(
                field,
                format!("{shard} is none of 0 to {}", count.saturating_sub(1)),
            );
        }
    }

    fn deploy(&mut self, field: &str, deploy: &Deploy) {
        let Deploy { batch, envoys, .. } = deploy;
        self.ensure(*batch > 0, field, || "must be at least 1".to_owned());
        let all = self.scenario.selectable(envoys);
        let all = envoys.count.map_or(all, |count| all.min(count as usize));
        self.ensure(*batch as usize <= all || all == 0, field, || {
            format!("{batch} is more than the {all} Envoys that are replaced")
        });
    }

    fn cut(&mut self, field: &str, cut: &Cut) {
        let Cut {
            region,
            coordinator,
            envoys,
            ..
        } = cut;
        let any = region.is_some() || coordinator.is_some() || envoys.is_some();
        self.ensure(any, field, || {
            "needs a region, a coordinator or envoys to cut off".to_owned()
        });
        let alone = cut.with_below && coordinator.is_none();
        self.ensure(!alone, &join(field, "with_below"), || {
            "needs a coordinator".to_owned()
        });
        let Some(region) = region else { return };
        let of_envoys = self.scenario.envoys.iter().map(|group| &group.region);
        let of_coordinators = self.scenario.coordinators.iter();
        let of_coordinators = of_coordinators.map(|coordinator| &coordinator.region);
        let known: BTreeSet<&String> = of_envoys.chain(of_coordinators).collect();
        let is_known = known.contains(region);
        let known: Vec<_> = known.into_iter().filter(|name| !name.is_empty()).collect();
        let known = known.into_iter().map(String::as_str).collect::<Vec<_>>();
        self.ensure(is_known, &join(field, "region"), || {
            if known.is_empty() {
                format!("{region:?} is no region; Envoys and coordinators name none")
            } else {
                format!("{region:?} is none of {}", known.join(", "))
            }
        });
    }
}
