//! Rules that events keep.

use super::{Check, EventSpec, join};

// === impl Check ===

impl Check<'_> {
    pub(super) fn event(&mut self, field: &str, event: &EventSpec) {
        let changes = [
            event.crash.is_some(),
            event.hand_over.is_some(),
            event.stop.is_some(),
            event.kill.is_some(),
            event.deploy.is_some(),
            event.cut.is_some(),
            event.demand.is_some(),
            event.limits.is_some(),
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
        let crashed = event.crash.iter().map(|crash| &crash.coordinator);
        let left = event.hand_over.iter().map(|left| &left.coordinator);
        for name in crashed.chain(left) {
            self.coordinator(field, name);
        }
        self.envoy_event(field, event);
        if let Some(limits) = event.limits {
            self.ensure(limits < self.limits, &join(field, "limits"), || {
                format!("there are no limits of number {limits}")
            });
        }
    }

    fn envoy_event(&mut self, field: &str, event: &EventSpec) {
        if let Some(stop) = &event.stop {
            let both = (&stop.coordinator, &stop.envoys);
            self.ensure(!matches!(both, (Some(_), Some(_))), field, || {
                "stops a coordinator or Envoys, not both".to_owned()
            });
        }
        let stopped = event
            .stop
            .as_ref()
            .and_then(|stop| stop.coordinator.as_ref());
        let cut = event.cut.as_ref().and_then(|cut| cut.coordinator.as_ref());
        for name in stopped.into_iter().chain(cut) {
            self.coordinator(field, name);
        }
        if let Some(deploy) = &event.deploy {
            self.ensure(deploy.batch > 0, &join(field, "deploy.batch"), || {
                "must be at least 1".to_owned()
            });
        }
        if let Some(demand) = &event.demand {
            let changes = [&demand.set, &demand.add, &demand.times];
            let count = changes.into_iter().flatten().count();
            self.ensure(count == 1, &join(field, "demand"), || {
                "needs one of set, add, times".to_owned()
            });
        }
        let selections = [
            event.stop.as_ref().and_then(|stop| stop.envoys.as_ref()),
            event.kill.as_ref().map(|kill| &kill.envoys),
            event.deploy.as_ref().map(|deploy| &deploy.envoys),
            event.cut.as_ref().and_then(|cut| cut.envoys.as_ref()),
            event.demand.as_ref().map(|demand| &demand.envoys),
        ];
        for selection in selections.into_iter().flatten() {
            self.selection(field, selection);
        }
    }
}
