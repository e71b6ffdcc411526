//! Charts of the last ten minutes, out of the history.

use crate::history::{HistoryOverview, STEPS, ScopeHistory, ScopeUnitHistory, UnitHistory, Values};

use super::chart::{BANDS_MAX, Band, Chart};
use super::text::{scope_path, short_client};

/// The steps of a history, by age.
#[derive(Clone, Copy, Debug)]
struct Steps {
    step_ms: u64,
    newest_age_ms: u64,
}

/// Returns the shares of the busiest scopes of `unit`, and of all others together; `None` if none has
/// any.
pub(super) fn of_scopes(history: &HistoryOverview, unit: &str) -> Option<Chart> {
    let sums = history.units.get(unit)?;
    let resources = history.resources.iter().filter(|one| one.unit == unit);
    let shares = resources.map(|one| {
        let href = Some(scope_path(&one.scope));
        (one.scope.clone(), href, &one.sum_has)
    });
    let steps = Steps {
        step_ms: history.step_ms,
        newest_age_ms: history.newest_age_ms,
    };
    let mut shares: Vec<_> = shares.collect();
    let whole = |values: &Values| values.iter().flatten().sum::<f32>();
    // The largest at the bottom; ties stay in the order of the busiest.
    shares.sort_by(|(.., one), (.., other)| whole(other).total_cmp(&whole(one)));
    // The limits of scopes are not one line.
    let mut chart = steps.chart(unit, shares, &sums.sum_has, &Vec::new());
    chart.press_no_band();
    Some(chart)
}

/// Returns the shares of the members of a group, of which `is_member` knows; `None` if none has any.
pub(super) fn of_members(
    history: &HistoryOverview,
    unit: &str,
    is_member: impl Fn(&str) -> bool,
) -> Option<Chart> {
    let members = history.resources.iter();
    let members: Vec<_> = members
        .filter(|one| is_member(&one.scope))
        .cloned()
        .collect();
    let mut sums: Values = Vec::new();
    for member in members.iter().filter(|one| one.unit == unit) {
        sums.resize(sums.len().max(member.sum_has.len()), None);
        for (sum, has) in sums.iter_mut().zip(&member.sum_has) {
            *sum = match (*sum, *has) {
                (Some(sum), Some(has)) => Some(sum + has),
                (sum, has) => sum.or(has),
            };
        }
    }
    let sums = UnitHistory {
        sum_has: sums,
        ..UnitHistory::default()
    };
    let chart = of_scopes(
        &HistoryOverview {
            units: [(unit.to_owned(), sums)].into(),
            resources: members,
            ..history.clone()
        },
        unit,
    )?;
    chart.has_bands().then_some(chart)
}

/// Returns the shares of the clients of `unit` of a scope; `None` if its past is not known.
pub(super) fn of_clients(history: &ScopeHistory, unit: &str) -> Option<Chart> {
    let ScopeUnitHistory {
        at_most,
        sum_has,
        clients,
        ..
    } = history.units.get(unit)?;
    let shares = clients
        .iter()
        .map(|one| (short_client(&one.client).into_owned(), None, &one.has));
    let steps = Steps {
        step_ms: history.step_ms,
        newest_age_ms: history.newest_age_ms,
    };
    Some(steps.chart(unit, shares.collect(), sum_has, at_most))
}

// === impl Steps ===

impl Steps {
    /// Returns the chart of `shares`, each with name and page, of which all together are `sums`.
    fn chart(
        self,
        unit: &str,
        shares: Vec<(String, Option<String>, &Values)>,
        sums: &Values,
        limits: &Values,
    ) -> Chart {
        let known: Vec<usize> = (0..sums.len()).filter(|at| sums[*at].is_some()).collect();
        let at = |values: &Values| -> Vec<f64> {
            let of = known.iter().map(|at| values.get(*at).copied().flatten());
            of.map(|value| value.map_or(0.0, f64::from)).collect()
        };
        let bands = shares.into_iter().map(|(name, href, values)| Band {
            name: Some(name),
            href,
            shares: at(values),
        });
        let shown = bands.filter(|band| band.shares.iter().any(|share| *share > 0.0));
        let mut bands: Vec<Band> = shown.take(BANDS_MAX).collect();
        bands.extend(others(&bands, &at(sums)));
        let newest = sums.len().saturating_sub(1);
        let age = |at: &usize| self.newest_age_ms + (newest - at) as u64 * self.step_ms;
        let limits = known
            .iter()
            .map(|at| limits.get(*at).copied().flatten().map(f64::from));
        Chart {
            unit: unit.to_owned(),
            window_ms: self.step_ms * STEPS as u64,
            limits: limits.collect(),
            beside: None,
            ages_ms: known.iter().map(age).collect(),
            bands,
        }
    }
}

// === impl Chart ===

impl Chart {
    /// Leaves out the band of all others where it is so high that it would press the rest to the
    /// ground.
    fn press_no_band(&mut self) {
        let height = |bands: &[Band]| {
            let shares = bands.iter().map(|band| band.shares.iter().sum::<f64>());
            shares.sum::<f64>()
        };
        if let Some((last, named)) = self.bands.split_last()
            && last.name.is_none()
            && height(named) > 0.0
            && height(std::slice::from_ref(last)) > 2.0 * height(named)
        {
            self.beside = last.shares.last().copied();
            self.bands.pop();
        }
    }
}

// === free functions ===

/// The band of what is in `sums` and not in `bands`.
fn others(bands: &[Band], sums: &[f64]) -> Option<Band> {
    let rest = sums.iter().enumerate().map(|(at, sum)| {
        let named: f64 = bands.iter().filter_map(|band| band.shares.get(at)).sum();
        // Samples are of 32 bits, so their sums differ in the last digits.
        let rest = sum - named;
        if rest > sum * 1e-4 { rest } else { 0.0 }
    });
    let shares: Vec<f64> = rest.collect();
    shares.iter().any(|share| *share > 0.0).then_some(Band {
        shares,
        ..Band::default()
    })
}

#[cfg(test)]
mod tests {
    use crate::history::{ClientHistory, ResourceHistory};

    use super::*;

    fn values(known: &[f32]) -> Values {
        std::iter::once(None)
            .chain(known.iter().copied().map(Some))
            .collect()
    }

    #[test]
    fn what_has_no_band_of_its_own_is_one_with_all_others() {
        let resource = |scope: &str, unit: &str, has: [f32; 2]| ResourceHistory {
            scope: scope.to_owned(),
            unit: unit.to_owned(),
            sum_has: values(&has),
        };
        let sums = UnitHistory {
            sum_has: values(&[40.0, 60.0]),
            ..UnitHistory::default()
        };
        let history = HistoryOverview {
            step_ms: 5000,
            newest_age_ms: 1000,
            units: [("requests".to_owned(), sums)].into(),
            resources: vec![
                resource("a", "requests", [30.0, 20.0]),
                resource("b", "concurrency", [1.0, 1.0]),
                resource("gone", "requests", [0.0, 0.0]),
            ],
            unanswered: Vec::new(),
        };
        let chart = of_scopes(&history, "requests").unwrap();
        let bands: Vec<_> = chart
            .bands
            .iter()
            .map(|one| (one.name.as_deref(), &*one.shares))
            .collect();
        assert_eq!(
            bands,
            [(Some("a"), &[30.0, 20.0][..]), (None, &[10.0, 40.0])]
        );
        assert_eq!(chart.ages_ms, [6000, 1000]);
        assert_eq!(chart.beside, None);
        assert!(of_scopes(&history, "concurrency").is_none());
    }

    #[test]
    fn only_members_are_in_the_chart_of_a_group() {
        let resource = |scope: &str, has: f32| ResourceHistory {
            scope: scope.to_owned(),
            unit: "requests".to_owned(),
            sum_has: values(&[has]),
        };
        let history = HistoryOverview {
            step_ms: 5000,
            resources: vec![
                resource("a", 30.0),
                resource("other", 90.0),
                resource("b", 10.0),
            ],
            ..HistoryOverview::default()
        };
        let is_member = |scope: &str| scope != "other";
        let chart = of_members(&history, "requests", is_member).unwrap();
        let names = chart.bands.iter().map(|one| one.name.as_deref());
        assert_eq!(names.collect::<Vec<_>>(), [Some("a"), Some("b")]);
        assert!(of_members(&history, "concurrency", is_member).is_none());
    }

    #[test]
    fn others_that_are_far_more_are_only_named() {
        let band = |name: Option<&str>, share: f64| Band {
            name: name.map(str::to_owned),
            href: None,
            shares: vec![share, share],
        };
        let mut chart = Chart {
            bands: vec![band(Some("a"), 10.0), band(None, 1000.0)],
            ..Chart::default()
        };
        chart.press_no_band();
        assert_eq!((chart.bands.len(), chart.beside), (1, Some(1000.0)));
        chart.press_no_band();
        assert_eq!(chart.bands.len(), 1);
    }

    #[test]
    fn clients_stand_below_the_limit_of_each_time() {
        let unit = ScopeUnitHistory {
            at_most: vec![None, Some(100.0), None],
            sum_has: values(&[30.0, 20.0]),
            clients: vec![ClientHistory {
                client: "a".to_owned(),
                has: values(&[30.0, 20.0]),
            }],
            ..ScopeUnitHistory::default()
        };
        let history = ScopeHistory {
            units: [("requests".to_owned(), unit)].into(),
            ..ScopeHistory::default()
        };
        let chart = of_clients(&history, "requests").unwrap();
        assert_eq!(chart.limits, [Some(100.0), None]);
        assert_eq!(chart.bands.len(), 1);
    }
}
