//! DESIGN's laws, one file each, checked after every event of every run.

use crate::fleet::Fleet;

/// Law about a fleet. It may remember earlier observations.
pub(crate) trait Law {
    fn name(&self) -> &'static str;

    /// Checks the law after every event.
    fn check(&mut self, _fleet: &Fleet) -> Result<(), String> {
        Ok(())
    }

    /// Checks the law after the last event, when everything has had time to settle.
    fn finish(&mut self, _fleet: &Fleet) -> Result<(), String> {
        Ok(())
    }
}

/// Returns all laws.
pub(crate) fn all() -> Vec<Box<dyn Law>> {
    vec![]
}
