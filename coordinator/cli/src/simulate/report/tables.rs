//! Samples as CSV, a line for each time, or for each time and scope or Envoy.

use csv::Writer;
use tollgate_sim::sample::Sample;

use super::RunRecord;
use crate::failure::Failure;
use crate::simulate::figures::{LIMIT_HEADER, limit_row};

// === free functions ===

/// Returns the samples of the whole fleet.
pub(super) fn samples(record: &RunRecord<'_>) -> Result<String, Failure> {
    let header = "seconds,wants,capacity,attainable,handed_out,has,admitted,refused,envoys,leases,\
                  without_lease,waiting,messages";
    let rows = record.samples.iter().map(|sample| {
        let Sample {
            wants,
            capacity,
            attainable,
            handed_out,
            has,
            admitted,
            refused,
            ..
        } = *sample;
        let rates = [
            wants, capacity, attainable, handed_out, has, admitted, refused,
        ]
        .map(rate);
        let counts = [
            sample.envoys.into(),
            sample.leases,
            sample.without_lease,
            sample.waiting,
            sample.messages,
        ];
        let counts = counts.map(|count: u64| count.to_string());
        let cells = [sample.at.to_string()].into_iter().chain(rates);
        cells.chain(counts).collect()
    });
    table(header, rows)
}

/// Returns the samples of each scope that is recorded by itself.
pub(super) fn scopes(record: &RunRecord<'_>) -> Result<String, Failure> {
    let rows = record.samples.iter().flat_map(|sample| {
        let named = record.scopes.iter().zip(&sample.scopes);
        named.map(move |(name, scope)| {
            vec![
                sample.at.to_string(),
                (*name).to_owned(),
                rate(scope.wants),
                or_unlimited(scope.capacity),
                or_unlimited(scope.has),
                or_unlimited(scope.ideal),
                rate(scope.admitted),
                rate(scope.refused),
            ]
        })
    });
    table(
        "seconds,scope,wants,capacity,has,ideal,admitted,refused",
        rows,
    )
}

/// Returns the samples of each Envoy that is recorded by itself.
pub(super) fn clients(record: &RunRecord<'_>) -> Result<String, Failure> {
    let rows = record.samples.iter().flat_map(|sample| {
        let named = record.envoys.iter().zip(&sample.clients);
        named.map(move |(name, client)| {
            let (wants, has) = (rate(client.wants), or_unlimited(client.has));
            vec![sample.at.to_string(), (*name).to_owned(), wants, has]
        })
    });
    table("seconds,envoy,wants,has", rows)
}

/// Returns the figures of each limit.
pub(super) fn limits(record: &RunRecord<'_>) -> Result<String, Failure> {
    let header = LIMIT_HEADER.replace('|', ",");
    table(&header, record.limits.iter().map(limit_row))
}

/// Returns the CSV of `rows` below `header`.
fn table(header: &str, rows: impl Iterator<Item = Vec<String>>) -> Result<String, Failure> {
    let mut writer = Writer::from_writer(Vec::new());
    writer
        .write_record(header.split(','))
        .map_err(Failure::runtime)?;
    for row in rows {
        writer.write_record(row).map_err(Failure::runtime)?;
    }
    let bytes = writer.into_inner().map_err(Failure::runtime)?;
    String::from_utf8(bytes).map_err(Failure::runtime)
}

fn rate(rate: f64) -> String {
    format!("{rate:.3}")
}

/// Returns a rate, or the word for none.
fn or_unlimited(bound: Option<f64>) -> String {
    bound.map_or_else(|| "unlimited".to_owned(), rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_is_one_field() {
        let row = |name: &str| vec![name.to_owned(), or_unlimited(None)];
        let rows = [row("tenant/a"), row("tenant/a,\"b\"")];
        let text = table("scope,has", rows.into_iter()).ok().unwrap();
        let want = "scope,has\ntenant/a,unlimited\n\"tenant/a,\"\"b\"\"\",unlimited\n";
        assert_eq!(text, want);
    }
}
