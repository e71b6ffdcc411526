//! Periods for which people write rates.

/// Period for which a rate was written: a minute in `100/min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatePeriod {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day of 24 hours.
    Day,
}

// === impl RatePeriod ===

impl RatePeriod {
    /// All periods, the shortest first.
    pub const ALL: [Self; 4] = [Self::Second, Self::Minute, Self::Hour, Self::Day];

    /// The period called `name`. There is no `m`: it could mean a minute or a month.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "s" | "sec" | "second" => Self::Second,
            "min" | "minute" => Self::Minute,
            "h" | "hour" => Self::Hour,
            "d" | "day" => Self::Day,
            _ => return None,
        })
    }

    /// The shortest name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "h",
            Self::Day => "d",
        }
    }

    /// Its length in seconds.
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
        }
    }

    /// Amount of the period at a rate of so many a second: the whole one from which the rate may come, which has six
    /// decimals.
    pub fn amount(self, per_second: f64) -> f64 {
        let seconds = f64::from(self.seconds());
        let amount = per_second * seconds;
        let whole = (amount + 0.5) as u64 as f64;
        if (amount - whole).abs() <= seconds * 5e-7 {
            whole
        } else {
            amount
        }
    }

    /// The period of so many seconds.
    pub fn from_seconds(seconds: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|period| period.seconds() == seconds)
    }
}
