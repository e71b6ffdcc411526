use crate::lease_view::{TrafficView, UnitSummary};

use super::*;

fn client(id: &str, throttled_for_ms: Option<u64>) -> ResourceClient {
    ResourceClient {
        client: id.to_owned(),
        wants: Amount::Number(10.0),
        has: Amount::Number(5.0),
        expires_in_ms: 9_000,
        throttled_for_ms,
    }
}

/// The table of `clients`, which are some of so many.
fn table(clients: Vec<ResourceClient>, client_count: usize) -> String {
    let detail = UnitDetail {
        summary: UnitSummary {
            capacity: Amount::Number(100.0),
            safe: None,
            learning_ms: 0,
            sum_has: Amount::Number(10.0),
            sum_wants: Amount::Number(20.0),
            client_count,
            written: None,
            limited_by: None,
            bucket: None,
            quotas: Vec::new(),
            traffic: TrafficView::default(),
        },
        waiting_count: 1,
        throttled_for_ms: Some(7),
        clients,
    };
    let table = ClientTable {
        scope: "tenant/acme",
        unit: "requests",
        detail: &detail,
        query: ClientQuery::default(),
    };
    table.table().into_string()
}

/// The script of the page finds a row again by its key.
#[test]
fn each_run_of_a_client_has_a_row_with_a_key_of_its_own() {
    let clients = vec![
        client("envoy-1", None),
        client("envoy-1", Some(7)),
        client("1 envoy-1", None),
    ];
    let html = table(clients, 3);
    let rows = html.split("data-key=\"").skip(1);
    let keys: Vec<&str> = rows.map(|row| row.split('"').next().unwrap()).collect();
    // The throttled run comes first, with the number of its place in the lease table.
    assert_eq!(keys, ["2 envoy-1", "1 envoy-1", "1 1 envoy-1"]);
    assert!(html.contains("<p>3 clients</p>"), "{html}");
}

#[test]
fn a_table_of_some_clients_says_which() {
    let html = table(vec![client("envoy-1", Some(7))], 1001);
    let want = "<p>1 of 1001 clients, those throttled for longest, then those with most</p>";
    assert!(html.contains(want), "{html}");
}
