//! Text formats of the metrics, and the choice between them.

use mime::Mime;

/// Text format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// Preference of a client for a format: its quality, then how exactly the format was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
struct Preference {
    quality: f32,
    exactness: u8,
}

// === impl Exposition ===

impl Exposition {
    /// Returns the format that a client with the `Accept` header `accept` prefers. Prometheus' own
    /// is for all who have no preference, or accept neither: it says less, but everything reads it.
    pub fn negotiate(accept: &str) -> Self {
        // Spaces around commas and semicolons say nothing.
        let accept: String = accept.split_whitespace().collect();
        let open_metrics = Self::OpenMetrics.preference(&accept);
        if open_metrics.quality > 0.0 && open_metrics > Self::Prometheus.preference(&accept) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the media type for `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns `open_metrics`, a page in OpenMetrics, in this format.
    pub(super) fn of(self, open_metrics: String) -> String {
        match self {
            Self::Prometheus => prometheus(&open_metrics),
            Self::OpenMetrics => open_metrics,
        }
    }

    /// Type, subtype and version of the format.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Prometheus => ("text", "plain", "0.0.4"),
            Self::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }

    /// The preference for this format; the most exact range of `accept` decides.
    fn preference(self, accept: &str) -> Preference {
        let ranges = accept.split(',').filter_map(|range| range.parse().ok());
        let matching = ranges.filter_map(|range| self.matching(&range));
        let exact = matching.max_by(|a, b| {
            let of = |preference: &Preference| (preference.exactness, preference.quality);
            of(a)
                .partial_cmp(&of(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        exact.unwrap_or_default()
    }

    /// The preference that `range` says if this format is in it.
    fn matching(self, range: &Mime) -> Option<Preference> {
        let (kind, subtype, version) = self.names();
        let wanted = range.get_param("version");
        let exactness = match (range.type_().as_str(), range.subtype().as_str()) {
            ("*", "*") => 1,
            (its, "*") if its == kind => 2,
            names if names == (kind, subtype) && wanted.is_none() => 3,
            names if names == (kind, subtype) && wanted.is_some_and(|wanted| wanted == version) => {
                4
            }
            _ => return None,
        };
        let quality = match range.get_param("q") {
            Some(quality) => quality.as_str().parse().ok()?,
            None => 1.0,
        };
        (0.0..=1.0)
            .contains(&quality)
            .then_some(Preference { quality, exactness })
    }
}

// === free functions ===

/// Rewrites a page in OpenMetrics for Prometheus: a family is called as its only series, an info is a
/// gauge, and there are neither units nor an end.
fn prometheus(open_metrics: &str) -> String {
    let mut page = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(family) = line.strip_prefix("# HELP ") {
            help = family.split_once(' ').unwrap_or_default().1;
        } else if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap_or((family, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            page.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            page.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Prometheus 3 asks, and as it asks if it is to prefer text.
    const OPEN_METRICS_FIRST: &str = "application/openmetrics-text;version=1.0.0;\
        escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,\
        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    const TEXT_FIRST: &str = "text/plain;version=0.0.4;q=0.6,\
        application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.4";

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        use Exposition::{OpenMetrics, Prometheus};
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Prometheus),
            ("text/plain", Prometheus),
            ("application/json", Prometheus),
            (OPEN_METRICS_FIRST, OpenMetrics),
            (TEXT_FIRST, Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            ("APPLICATION/OpenMetrics-Text; Version=1.0.0", OpenMetrics),
            ("application/openmetrics-text, */*", OpenMetrics),
            ("application/*", OpenMetrics),
            (
                "application/openmetrics-text ; q=0.5 , text/plain",
                Prometheus,
            ),
            ("application/openmetrics-text; version=2.0.0", Prometheus),
            ("application/openmetrics-text; q=0", Prometheus),
            (
                "application/openmetrics-text; q=0, text/plain; q=0",
                Prometheus,
            ),
            ("application/openmetrics-text; q=0, */*", Prometheus),
            (
                "application/openmetrics-text; q=0.5, text/plain",
                Prometheus,
            ),
            (
                "application/openmetrics-text; q=0.5, text/plain; q=0.4",
                OpenMetrics,
            ),
            (
                "text/plain; q=0.3, application/openmetrics-text; q=0.3",
                Prometheus,
            ),
            // A range with a quality that is none is left out, and what is no media type, too.
            (
                "application/openmetrics-text; q=2, text/plain; q=0.1",
                Prometheus,
            ),
            (
                "application/openmetrics-text; q=NaN, text/plain; q=0.1",
                Prometheus,
            ),
            (",;;q, application/openmetrics-text", OpenMetrics),
        ] {
            assert_eq!(Exposition::negotiate(accept), format, "{accept}");
        }
    }

    #[test]
    fn a_page_for_prometheus_names_families_as_their_series() {
        let page = "# HELP t_build The build.\n# TYPE t_build info\nt_build_info{version=\"1\"} 1\n\
            # HELP t_calls Calls.\n# TYPE t_calls counter\nt_calls_total 3\n\
            # HELP t_left_seconds Time.\n# TYPE t_left_seconds gauge\n\
            # UNIT t_left_seconds seconds\nt_left_seconds 2.5\n# EOF\n";
        let wanted = "# HELP t_build_info The build.\n# TYPE t_build_info gauge\n\
            t_build_info{version=\"1\"} 1\n\
            # HELP t_calls_total Calls.\n# TYPE t_calls_total counter\nt_calls_total 3\n\
            # HELP t_left_seconds Time.\n# TYPE t_left_seconds gauge\nt_left_seconds 2.5\n";
        assert_eq!(Exposition::Prometheus.of(page.to_owned()), wanted);
        assert_eq!(Exposition::OpenMetrics.of(page.to_owned()), page);
    }
}
