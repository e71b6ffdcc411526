//! Wants of a client, by priority.

use alloc::boxed::Box;
use core::num::NonZeroU32;

use crate::units::Capacity;

/// Priority of demand: 0, the lowest, to 15. Of a scarce capacity, higher bands are filled first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

/// Wants of a client, by priority: one band, or several for one that speaks for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand(DemandBands);

#[derive(Clone, Debug, PartialEq, Eq)]
enum DemandBands {
    One(Band),
    /// At least two, the highest priority first, each once.
    Several(Box<[Band]>),
}

/// Wants of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// Priority of the band.
    pub priority: Priority,
    /// Capacity that is wanted.
    pub wants: Capacity,
    /// Number of clients for which this one speaks. A band is divided between them all as if each
    /// had asked by itself.
    pub subclients: NonZeroU32,
}

/// Error in the bands of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DemandError {
    /// No band at all.
    #[error("has no entries")]
    Empty,
    /// Two bands of one priority.
    #[error("names priority {} twice", .0.level())]
    Twice(Priority),
}

// === impl Priority ===

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 16;
    /// The lowest, and the default.
    pub const LOWEST: Self = Self(0);
    /// The highest.
    pub const HIGHEST: Self = Self(15);

    /// The priority `level`; none if it is above 15.
    pub const fn new(level: u8) -> Option<Self> {
        if level <= Self::HIGHEST.0 {
            Some(Self(level))
        } else {
            None
        }
    }

    /// The priority nearest to `level`, for protocols that do not bound it, such as Doorman's.
    pub fn nearest(level: i64) -> Self {
        let level = level.clamp(0, i64::from(Self::HIGHEST.0));
        Self(u8::try_from(level).unwrap_or_default())
    }

    /// The priority as a number, 0 to 15.
    pub const fn level(self) -> u8 {
        self.0
    }
}

// === impl Demand ===

impl Demand {
    /// The demand of a client that speaks for itself alone, in the lowest band.
    pub const fn of(wants: Capacity) -> Self {
        Self::one(Band {
            priority: Priority::LOWEST,
            wants,
            subclients: NonZeroU32::MIN,
        })
    }

    /// The demand of one band.
    pub const fn one(band: Band) -> Self {
        Self(DemandBands::One(band))
    }

    /// The demand of several bands, as of a coordinator that asks its parent.
    ///
    /// # Errors
    /// If there is none, or a priority comes twice.
    pub fn try_from_bands(bands: &[Band]) -> Result<Self, DemandError> {
        let mut sorted: Box<[Band]> = bands.into();
        sorted.sort_unstable_by_key(|band| core::cmp::Reverse(band.priority));
        let twice = |pair: &[Band]| match pair {
            [a, b] if a.priority == b.priority => Some(a.priority),
            _ => None,
        };
        if let Some(priority) = sorted.windows(2).find_map(twice) {
            return Err(DemandError::Twice(priority));
        }
        match *sorted {
            [] => Err(DemandError::Empty),
            [band] => Ok(Self::one(band)),
            _ => Ok(Self(DemandBands::Several(sorted))),
        }
    }

    /// The bands, the highest priority first; at least one, each priority once.
    pub fn bands(&self) -> &[Band] {
        match &self.0 {
            DemandBands::One(band) => core::slice::from_ref(band),
            DemandBands::Several(bands) => bands,
        }
    }

    /// The demand with so much `more` in its lowest band, up to `most` in all.
    pub(crate) fn with_more(self, more: Capacity, most: Capacity) -> Self {
        let more = more.min(most.saturating_sub(self.wants()));
        let add = |band: &mut Band| band.wants = band.wants.saturating_add(more);
        match self.0 {
            DemandBands::One(mut band) => {
                add(&mut band);
                Self::one(band)
            }
            DemandBands::Several(mut bands) => {
                if let Some(lowest) = bands.last_mut() {
                    add(lowest);
                }
                Self(DemandBands::Several(bands))
            }
        }
    }

    /// Sum of the wants of all bands.
    pub fn wants(&self) -> Capacity {
        let wants = self.bands().iter().map(|band| band.wants);
        wants.fold(Capacity::ZERO, Capacity::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_clamped() {
        let rows = [(i64::MIN, 0), (-1, 0), (0, 0), (7, 7), (15, 15), (16, 15)];
        for (level, want) in rows {
            assert_eq!(Priority::nearest(level).level(), want, "{level}");
        }
        assert_eq!(Priority::new(15), Some(Priority::HIGHEST));
        assert_eq!(Priority::new(16), None);
    }

    #[test]
    fn bands_come_once_and_the_highest_first() {
        let band = |level, wants| Band {
            priority: Priority(level),
            wants: Capacity::from_whole(wants),
            subclients: NonZeroU32::MIN,
        };
        let demand = Demand::try_from_bands(&[band(2, 10), band(9, 20)]).unwrap();
        assert_eq!(demand.bands(), [band(9, 20), band(2, 10)]);
        assert_eq!(demand.wants(), Capacity::from_whole(30));
        let one = Demand::try_from_bands(&[band(3, 5)]).unwrap();
        assert_eq!(one, Demand::one(band(3, 5)));
        let twice = Demand::try_from_bands(&[band(3, 5), band(4, 1), band(3, 6)]);
        assert_eq!(twice, Err(DemandError::Twice(Priority(3))));
        assert_eq!(Demand::try_from_bands(&[]), Err(DemandError::Empty));
    }
}
