//! Raises: limits that hold for a time, over all others.

use serde_json::{Value, json};

use crate::harness::Ask;
use crate::writes::{coordinator, status_and_body};

/// Seconds since 1970, so many from now.
fn in_seconds(seconds: u64) -> u64 {
    tollgate_net::clock::unix_time().as_secs() + seconds
}

#[tokio::test]
async fn a_raise_wins_over_the_file_and_groups_and_ends_by_itself() {
    let coordinator = coordinator().await;
    let raise = async |scope: &str, body: Value| {
        let ask = Ask::patch(&format!("/v1/raises/{scope}"), &body.to_string());
        status_and_body(&coordinator.ask(&ask).await)
    };
    let limit = async |scope: &str| {
        let limits = coordinator.get(&format!("/v1/limits/{scope}")).await.json();
        let own = &limits["own"];
        let capacity = own["units"]["requests"]["capacity"].as_f64();
        let of_group = limits["group"]["units"]["requests"]["capacity"].as_f64();
        (
            own["source"]["kind"].as_str().map(str::to_owned),
            capacity,
            of_group,
        )
    };
    let raised = Some("raise".to_owned());
    let until = in_seconds(3600);
    // An exact entry of the file, a group of the file and its member, and a pattern.
    for (scope, rate) in [
        ("tenant/fixed", 70),
        ("group/file", 500),
        ("tenant/other", 9),
    ] {
        let (status, body) =
            raise(scope, json!({"requests": {"rate": rate}, "until": until})).await;
        assert_eq!(status, 201, "{body}");
        let (kind, capacity, _) = limit(scope).await;
        assert_eq!(
            (kind, capacity),
            (raised.clone(), Some(f64::from(rate))),
            "{scope}"
        );
    }
    assert_eq!(
        limit("tenant/old").await.2,
        Some(500.0),
        "a member has its group's"
    );
    // The fields beside the rate stay as the file has them.
    let (_, body) = raise(
        "tenant/other",
        json!({"requests": {"burst": 20}, "until": until}),
    )
    .await;
    assert_eq!(
        body["spec"]["requests"],
        json!({"rate": 9, "burst": 20, "headroom": 0})
    );
    let (status, body) = raise("tenant/none", json!({"requests": {"rate": 1}})).await;
    assert_eq!(
        (status, &body["errors"][0]["field"]),
        (422, &json!("until")),
        "{body}"
    );

    let ended = coordinator
        .ask(&Ask::delete("/v1/raises/tenant/fixed"))
        .await;
    assert_eq!(ended.status, 204);
    assert_eq!(limit("tenant/fixed").await.1, Some(7.0));
    let (status, _) = raise("group/file", json!({"until": in_seconds(1)})).await;
    assert_eq!(status, 200);
    while coordinator.get("/v1/raises/group/file").await.status != 404 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(limit("tenant/old").await.2, Some(50.0));
    let left = coordinator.get("/v1/raises").await.json();
    assert_eq!(left["raises"].as_array().unwrap().len(), 1, "{left}");
}

#[tokio::test]
async fn a_block_lowers_a_safe_capacity_that_it_does_not_name() {
    let coordinator = coordinator().await;
    let until = in_seconds(3600);
    let rows = [
        (json!({"rate": 9, "safe": 4}), json!(4)),
        (json!({"rate": 20}), json!(4)),
        (json!({"rate": "2/min"}), json!("2/min")),
        (json!({"rate": 0}), json!(0)),
    ];
    for (requests, safe) in rows {
        let change = json!({"requests": requests, "until": until});
        let ask = Ask::patch("/v1/raises/tenant/other", &change.to_string());
        let (status, body) = status_and_body(&coordinator.ask(&ask).await);
        assert!(status < 300, "{body}");
        assert_eq!(body["spec"]["requests"]["safe"], safe, "{body}");
    }
    let wrong = json!({"requests": {"rate": 1, "safe": 2}, "until": until});
    let ask = Ask::patch("/v1/raises/tenant/other", &wrong.to_string());
    assert_eq!(coordinator.ask(&ask).await.status, 422);
}
