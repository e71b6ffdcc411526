//! Logarithmic sliders: positions from 0 to 100, and the rates that they stand for.

/// Largest position.
pub(crate) const POSITION_MAX: f64 = 100.0;
/// Factor between the largest rate and the one at the lower end, above zero.
const SPAN: f64 = 1000.0;

/// Returns the rate at a position of a slider that goes up to `max`; the first position is zero.
pub(crate) fn rate_at(position: f64, max: f64) -> f64 {
    if position.is_nan() || position <= 0.0 {
        return 0.0;
    }
    let part = (position / POSITION_MAX).min(1.0);
    rounded(max * SPAN.powf(part - 1.0))
}

/// Returns the position of a rate on a slider that goes up to `max`.
pub(crate) fn position_of(rate: f64, max: f64) -> f64 {
    if rate.is_nan() || rate <= 0.0 || max <= 0.0 {
        return 0.0;
    }
    let part = 1.0 + (rate / max).ln() / SPAN.ln();
    // The lower end means zero.
    (part * POSITION_MAX).clamp(0.5, POSITION_MAX)
}

/// Returns a rate with as many digits as people say, two and a half: 0.35, 42, 125, 1250.
pub(crate) fn rounded(rate: f64) -> f64 {
    if !rate.is_finite() || rate <= 0.0 {
        return 0.0;
    }
    let digits = rate.log10().floor();
    let step = 10f64.powf(digits - 1.0) / 2.0;
    let steps = (rate / step).round();
    // Divides where the step is a fraction, which has no exact form.
    if step < 1.0 {
        steps / (1.0 / step).round()
    } else {
        steps * step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stand_for_rates_from_zero_to_the_largest() {
        assert_eq!(rate_at(0.0, 200.0), 0.0);
        assert_eq!(rate_at(f64::NAN, 200.0), 0.0);
        assert_eq!(rate_at(100.0, 200.0), 200.0);
        assert_eq!(rate_at(1e9, 200.0), 200.0);
        let rates: Vec<_> = (0..=100).map(|at| rate_at(f64::from(at), 200.0)).collect();
        assert!(rates.is_sorted(), "{rates:?}");
        assert!(rates[1] > 0.0 && rates[1] < 0.25);
    }

    #[test]
    fn a_rate_comes_back_from_its_position() {
        for rate in [0.3, 1.0, 7.5, 42.0, 125.0, 200.0] {
            let back = rate_at(position_of(rate, 200.0), 200.0);
            assert!((back - rate).abs() < 1e-9, "{rate} came back as {back}");
        }
        assert_eq!(position_of(0.0, 200.0), 0.0);
        assert_eq!(position_of(900.0, 200.0), POSITION_MAX);
        assert!(
            position_of(1e-9, 200.0) > 0.0,
            "no rate above zero is at its place"
        );
    }

    #[test]
    fn rates_are_rounded_as_people_say_them() {
        let rows = [
            (0.347, 0.345),
            (41.9, 42.0),
            (127.0, 125.0),
            (1234.0, 1250.0),
        ];
        for (rate, want) in rows {
            assert_eq!(rounded(rate), want);
        }
        assert_eq!(rounded(f64::INFINITY), 0.0);
    }
}
