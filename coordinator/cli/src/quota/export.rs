//! `tollgate quota export`: usage by window, for billing.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tollgate_admin::view::{QuotaView, QuotasPage, QuotasView};

use super::show::time;
use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, segment};
use crate::print;

/// Export the usage of all quotas, of this window and of the last twelve.
///
/// A window can be exported until an eighth of its length after its end; as long as its scope is used, until twelve more
/// have ended.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Json,
    Openmetrics,
}

/// Usage of a quota in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Usage {
    scope: String,
    unit: String,
    per: String,
    from: String,
    until: String,
    used: f64,
    /// The amount of the window of now; that of earlier ones may have been another.
    amount: Option<f64>,
}

/// Labels of a gauge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    scope: String,
    unit: String,
    per: String,
    from: String,
    until: String,
}

type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

// === impl Export ===

impl Export {
    pub(super) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let (scopes, unanswered) = all(client)?;
        let usage: Vec<Usage> = scopes.iter().flat_map(usage).collect();
        match self.format {
            _ if as_json => print::json(&usage),
            Format::Json => print::json(&usage),
            Format::Csv => print::lines(csv(&usage)?.trim_end()),
            Format::Openmetrics => print::lines(open_metrics(&usage)?.trim_end()),
        }?;
        if unanswered.is_empty() {
            return Ok(());
        }
        let nodes = Vec::from_iter(unanswered).join(", ");
        let error = anyhow!("no answer from {nodes}: their scopes are missing");
        Err(Failure::runtime(error))
    }
}

// === free functions ===

/// Quotas of all scopes, and the nodes that did not answer for any page.
fn all(client: &Client) -> Result<(Vec<QuotasView>, BTreeSet<String>), Failure> {
    let (mut scopes, mut unanswered) = (Vec::new(), BTreeSet::new());
    let mut after = String::new();
    loop {
        let path = format!("{}?limit=1000&after={}", Kind::Quota.all(), segment(&after));
        let page: QuotasPage = client.send(Call::get(path))?.read()?;
        scopes.extend(page.scopes);
        unanswered.extend(page.unanswered);
        let Some(next) = page.next else {
            return Ok((scopes, unanswered));
        };
        after = next;
    }
}

/// Usage of the quotas of a scope by window, the earliest first.
fn usage(quotas: &QuotasView) -> Vec<Usage> {
    let mut windows = Vec::new();
    for (unit, quotas_of_unit) in &quotas.units {
        for quota in quotas_of_unit {
            let window = |from_ms, until_ms, used, amount| Usage {
                scope: quotas.scope.clone(),
                unit: unit.clone(),
                per: quota.per.clone(),
                from: time(from_ms),
                until: time(until_ms),
                used,
                amount,
            };
            let ended = quota.ended.iter();
            windows.extend(ended.map(|one| window(one.from_ms, one.until_ms, one.used, None)));
            let QuotaView {
                from_ms, until_ms, ..
            } = *quota;
            windows.push(window(from_ms, until_ms, quota.used, Some(quota.amount)));
        }
    }
    windows
}

fn csv(usage: &[Usage]) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for window in usage {
        writer.serialize(window).map_err(Failure::runtime)?;
    }
    let bytes = writer.into_inner().map_err(Failure::runtime)?;
    String::from_utf8(bytes).map_err(Failure::runtime)
}

fn open_metrics(usage: &[Usage]) -> Result<String, Failure> {
    let (used, amount) = (Gauges::default(), Gauges::default());
    let mut registry = Registry::with_prefix("tollgate_quota");
    registry.register("used", "Tokens that were used in a window", used.clone());
    registry.register("amount", "Tokens of the window of now", amount.clone());
    for window in usage {
        let Usage {
            scope,
            unit,
            per,
            from,
            until,
            ..
        } = window.clone();
        let labels = Labels {
            scope,
            unit,
            per,
            from,
            until,
        };
        used.get_or_create(&labels).set(window.used);
        if let Some(tokens) = window.amount {
            amount.get_or_create(&labels).set(tokens);
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(Failure::runtime)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn acme() -> Vec<Usage> {
        let quotas = serde_json::from_value(
            json!({"scope": "tenant/a,\"b\"", "units": {"requests": [{
                "per": "day", "amount": 1000.0, "used": 12.5, "left": 987.5,
                "from_ms": 1_790_121_600_000_u64, "until_ms": 1_790_208_000_000_u64, "at_ms": 1_790_121_600_001_u64,
                "ended": [{"from_ms": 1_790_035_200_000_u64, "until_ms": 1_790_121_600_000_u64, "used": 1000.0}],
            }]}}),
        );
        usage(&quotas.unwrap())
    }

    #[test]
    fn every_format_has_every_window() {
        let usage = acme();
        let want = "scope,unit,per,from,until,used,amount
\"tenant/a,\"\"b\"\"\",requests,day,2026-09-22T00:00:00Z,2026-09-23T00:00:00Z,1000.0,
\"tenant/a,\"\"b\"\"\",requests,day,2026-09-23T00:00:00Z,2026-09-24T00:00:00Z,12.5,1000.0
";
        assert_eq!(csv(&usage).unwrap(), want);
        let metrics = open_metrics(&usage).unwrap();
        let used = r#"tollgate_quota_used{scope="tenant/a,\"b\"",unit="requests",per="day",from="2026-09-22T00:00:00Z",until="2026-09-23T00:00:00Z"} 1000.0"#;
        assert!(metrics.contains(used), "{metrics}");
        assert_eq!(metrics.matches("tollgate_quota_amount{").count(), 1);
        assert!(metrics.ends_with("# EOF\n"));
    }
}
