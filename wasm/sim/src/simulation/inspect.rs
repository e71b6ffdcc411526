//! Inspection of a simulation by laws, after each event.

use std::rc::Rc;

use super::Simulation;
use crate::defect::Defect;
use crate::inspection::Inspection;
use crate::process::view::ClientView;

// === impl Simulation ===

impl Simulation {
    /// Makes all processes observe themselves for laws, and plants `defect` if there is one. To be
    /// called before the first event.
    pub fn inspect(&mut self, defect: Option<Defect>) {
        let inspection = Inspection::new(&self.scopes, &self.limits, defect);
        let shares = inspection.resources.iter().any(|resource| {
            let own = resource.number.as_slice();
            resource.members != own
        });
        for kind in &mut self.kinds {
            if let Some(kind) = Rc::get_mut(kind) {
                kind.config.reports_limits = shares;
            }
        }
        self.inspection = Some(inspection);
    }

    /// Returns whether a defect is planted.
    pub(super) fn has_defect(&self, defect: Defect) -> bool {
        let inspection = self.inspection.as_ref();
        inspection.is_some_and(|inspection| inspection.defect == Some(defect))
    }

    /// Returns views of all processes as clients of all inspected resources.
    pub fn clients(&self) -> impl Iterator<Item = ClientView<'_>> {
        (0..self.envoys.len()).flat_map(|index| self.clients_at(index))
    }

    /// Returns views of the processes that did something in the last event.
    pub fn touched_clients(&self) -> impl Iterator<Item = ClientView<'_>> {
        let touched = self.touched.iter();
        touched.flat_map(|index| self.clients_at(*index))
    }

    /// Returns views of the process at the place of an Envoy.
    pub fn clients_at(&self, index: usize) -> impl Iterator<Item = ClientView<'_>> {
        let envoy = &self.envoys[index];
        let name = (index, envoy.name.as_str());
        let process = envoy.process.iter();
        process.flat_map(move |process| process.views(self.now(), name))
    }

    /// Notes that a process has done something.
    pub(super) fn touch(&mut self, index: usize) {
        if self.inspection.is_some() && !self.touched.contains(&index) {
            self.touched.push(index);
        }
    }

    /// Begins to count anew what processes admit between two events.
    pub(super) fn forget_touched(&mut self) {
        for index in self.touched.drain(..) {
            if let Some(process) = &mut self.envoys[index].process {
                process.forget_admitted();
            }
        }
    }
}
