//! Metadata is read without lines in Envoy's log.

use tollgate_filter::MetadataKind;

use super::*;
use crate::envoy::{MetadataSource, MetadataValue};
use crate::property;

const COST: &[&str] = &["metadata", "filter_metadata", "metadata-test", "price"];
const EXCEPTIONS: &[&str] = &["xds", "route_metadata", "filter_metadata", "tollgate"];

/// The number of lines about `key` in the log.
fn lines(key: &str) -> usize {
    let about = format!("key {key} is not");
    let fake = fake();
    fake.logs
        .iter()
        .filter(|line| line.starts_with(&about))
        .count()
}

fn read(stream: usize, path: &[&str], likely: MetadataKind) -> Option<Vec<u8>> {
    property::read(stream_ptr(stream), path, likely)
}

/// A stream with the exceptions `all` of its route.
fn routed(all: &[(&str, MetadataValue)]) -> usize {
    let mut fake = fake();
    let stream = fake.new_stream(&[]);
    fake.set_metadata(stream, MetadataSource::Route as u32, "tollgate", all);
    stream
}

#[test]
fn exceptions_of_the_right_kinds_cost_no_line() {
    let scopes = MetadataValue::Texts(vec![b"tenant".to_vec()]);
    let stream = routed(&[
        ("disabled", MetadataValue::Flag(false)),
        ("scopes", scopes),
        ("newer", MetadataValue::Number(1.0)),
    ]);
    for _ in 0..3 {
        let all = read(stream, EXCEPTIONS, MetadataKind::Text).unwrap();
        let parts: [&[u8]; 3] = [b"disabled\0\0\0", b"tenant\0", b"newer\0\0"];
        for part in parts {
            let found = all.windows(part.len()).any(|bytes| bytes == part);
            assert!(found, "{part:?} in {all:?}");
        }
    }
    assert_eq!([lines("disabled"), lines("scopes"), lines("newer")], [0; 3]);
}

#[test]
fn an_exception_of_the_wrong_kind_costs_a_line_and_not_one_for_each_request() {
    let wrong = routed(&[("cost", MetadataValue::Text(b"20".to_vec()))]);
    let right = routed(&[("cost", MetadataValue::Number(20.0))]);
    for _ in 0..5 {
        let all = read(wrong, EXCEPTIONS, MetadataKind::Text).unwrap();
        assert!(all.ends_with(b"cost\x0020\0"), "{all:?}");
        assert!(read(right, EXCEPTIONS, MetadataKind::Text).is_some());
    }
    assert_eq!(lines("cost"), 1);
}

#[test]
fn a_cost_may_be_a_number_or_a_text() {
    let priced = |value| {
        let mut fake = fake();
        let stream = fake.new_stream(&[]);
        let all = [("price", value)];
        fake.set_metadata(
            stream,
            MetadataSource::Dynamic as u32,
            "metadata-test",
            &all,
        );
        stream
    };
    let without = fake().new_number();
    assert_eq!(read(without, COST, MetadataKind::Number), None);
    for _ in 0..3 {
        let stream = priced(MetadataValue::Number(7.0));
        let price = read(stream, COST, MetadataKind::Number);
        assert_eq!(price.as_deref(), Some(&7.0_f64.to_le_bytes()[..]));
    }
    assert_eq!(lines("price"), 0);
    for _ in 0..3 {
        let stream = priced(MetadataValue::Text(b"7".to_vec()));
        let price = read(stream, COST, MetadataKind::Number);
        assert_eq!(price.as_deref(), Some(&b"7"[..]));
    }
    assert_eq!(lines("price"), 1, "only of the change");
}
