//! Rules that events keep.

use std::collections::BTreeSet;

use super::{Check, EventSpec, join};
use crate::scenario::{Cut, Deploy, HandOver};

// === impl Check ===

impl Check<'_> {
    pub(super) fn event(&mut self, field: &str, event: &EventSpec) {
        let changes = [
            event.crash.is_some(),
            event.hand_over.is_some(),
            event.lose_term.is_some(),
            event.stop.is_some(),
            event.kill.is_some(),
            event.deploy.is_some(),
            event.cut.is_some(),
            event.demand.is_some(),
            event.limits.is_some(),
            event.trap.is_some(),
            event.scale.is_some(),
        ];
        let count = changes.into_iter().filter(|there| *there).count();
        self.ensure(count == 1, field, || {
            format!("names {count} changes; one event is one")
        });
        self.ensure(
            event.at <= self.scenario.duration,
            &join(field, "at"),
            || {
                let end = self.scenario.duration.0;
                format!("{:?} is after the end, {end:?}", event.at.0)
            },
        );
        self.named(field, event);
        self.change(field, event);
        self.limits(&join(field, "limits"), event.limits);
    }

    /// Checks that the coordinators and Envoys that an event names are there.
    fn named(&mut self, field: &str, event: &EventSpec) {
        let named = [
            (
                "crash.coordinator",
                event.crash.as_ref().map(|crash| &crash.coordinator),
            ),
            (
                "hand_over.coordinator",
                event.hand_over.as_ref().map(|left| &left.coordinator),
            ),
            (
                "lose_term.coordinator",
                event.lose_term.as_ref().map(|lost| &lost.coordinator),
            ),
            (
                "stop.coordinator",
                event
                    .stop
                    .as_ref()
                    .and_then(|stop| stop.coordinator.as_ref()),
            ),
            (
                "cut.coordinator",
                event.cut.as_ref().and_then(|cut| cut.coordinator.as_ref()),
            ),
        ];
        for (name, coordinator) in named {
            if let Some(coordinator) = coordinator {
                self.coordinator(&join(field, name), coordinator);
            }
        }
        let selections = [
            (
                "stop.envoys",
                event.stop.as_ref().and_then(|stop| stop.envoys.as_ref()),
            ),
            ("kill.envoys", event.kill.as_ref().map(|kill| &kill.envoys)),
            (
                "deploy.envoys",
                event.deploy.as_ref().map(|deploy| &deploy.envoys),
            ),
            (
                "cut.envoys",
                event.cut.as_ref().and_then(|cut| cut.envoys.as_ref()),
            ),
            (
                "demand.envoys",
                event.demand.as_ref().map(|demand| &demand.envoys),
            ),
            ("trap.envoys", event.trap.as_ref().map(|trap| &trap.envoys)),
        ];
        for (name, selection) in selections {
            if let Some(selection) = selection {
                self.selection(&join(field, name), selection);
            }
        }
    }

    fn change(&mut self, field: &str, event: &EventSpec) {
        if let Some(stop) = &event.stop {
            let both = stop.coordinator.is_some() && stop.envoys.is_some();
            self.ensure(!both, &join(field, "stop"), || {
                "stops a coordinator or Envoys, not both".to_owned()
            });
        }
        if let Some(hand_over) = &event.hand_over {
            let HandOver {
                coordinator, shard, ..
            } = hand_over;
            self.shard(&join(field, "hand_over.shard"), coordinator, *shard);
        }
        if let Some(lost) = &event.lose_term {
            self.shard(
                &join(field, "lose_term.shard"),
                &lost.coordinator,
                lost.shard,
            );
            let (term, elected) = (lost.term.0, lost.elected_after.0);
            let holds = term < elected && elected <= lost.lasts.0;
            self.ensure(holds, &join(field, "lose_term"), || {
                let lasts = lost.lasts.0;
                format!("term {term:?} < elected_after {elected:?} <= for {lasts:?} does not hold")
            });
        }
        if let Some(deploy) = &event.deploy {
            self.deploy(&join(field, "deploy.batch"), deploy);
        }
        if let Some(scale) = &event.scale {
            self.group_name(&join(field, "scale.group"), &scale.group);
        }
        if let Some(cut) = &event.cut {
            self.cut(&join(field, "cut"), cut);
        }
        if let Some(demand) = &event.demand {
            let changes = [&demand.set, &demand.add, &demand.times];
            let count = changes.into_iter().flatten().count();
            self.ensure(count == 1, &join(field, "demand"), || {
                "needs one of set, add, times".to_owned()
            });
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
            match known.is_empty() {
                true => format!("{region:?} is no region; Envoys and coordinators name none"),
                false => format!("{region:?} is none of {}", known.join(", ")),
            }
        });
    }
}
