//! Defects that are planted to test the laws.

/// Defect between processes, or their workers, and their surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Now and then shared data hands out an old record as if it were the newest, so that workers
    /// draw the same tokens.
    StaleRead,
    /// Shared data stores what should lose against another worker's write.
    LostCompare,
    /// Leases are longer on their way to a process.
    LateExpiry,
    /// Coordinators divide half of the capacity.
    HalfCapacity,
    /// Coordinators divide in proportion to wants where shares should be max-min fair.
    Proportional,
    /// Masters do not look at their terms before they answer.
    WithoutTerms,
}
