//! Scale of a chart: from 0 to a round amount.

/// About how many lines a scale has.
const LINES: f64 = 5.0;

/// Part of a step by which amounts may reach beyond the last line: samples are rounded.
const ROUNDING: f64 = 1e-3;

/// Round amounts up to the top of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The amount at its upper end.
    pub(crate) top: f64,
    /// The amount between two lines.
    step: f64,
}

// === impl Scale ===

impl Scale {
    /// A scale on which `most` has its place. `bytes` are round in other numbers than the rest.
    pub(crate) fn of(most: f64, bytes: bool) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let least = most * (1.0 - ROUNDING) / LINES;
        let base: f64 = if bytes { 1024.0 } else { 10.0 };
        let whole = base.powf(most.log(base).floor());
        let decimal = 10_f64.powf((least / whole).log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decimal * whole);
        let step = round.into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(least);
        Self {
            top: (most / step - ROUNDING).ceil().max(1.0) * step,
            step,
        }
    }

    /// The part of the scale below `value`.
    pub(crate) fn part(self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0)
    }

    /// The amounts with a line.
    pub(crate) fn ticks(self) -> impl Iterator<Item = f64> {
        let count = (self.top / self.step).round() as usize;
        (0..=count).map(move |i| i as f64 * self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_at_round_amounts() {
        let rows = [
            (100.0001, false, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0][..]),
            (130.0, false, &[0.0, 50.0, 100.0, 150.0]),
            (7.0, false, &[0.0, 2.0, 4.0, 6.0, 8.0]),
            (4096.0, true, &[0.0, 1024.0, 2048.0, 3072.0, 4096.0]),
            (
                5e6,
                true,
                &[
                    0.0,
                    1_048_576.0,
                    2_097_152.0,
                    3_145_728.0,
                    4_194_304.0,
                    5_242_880.0,
                ],
            ),
        ];
        for (most, bytes, want) in rows {
            let scale = Scale::of(most, bytes);
            let ticks: Vec<f64> = scale.ticks().collect();
            assert_eq!(ticks, want, "{most}");
            assert!(scale.part(most) <= 1.0);
        }
    }
}
