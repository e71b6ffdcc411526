//! Looks at scopes, and changes of their balances without a request.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_client::{AcquireError, Charge, Client, Rule, ScopeLevel, Settings};

use crate::lender::Lender;

const ACME: &str = "tenant/acme";

async fn leased(lender: &Lender) -> Client {
    let settings = Settings::new("http://unused").rule(Rule::new("tenant"));
    let client = Client::start_with(&settings, lender.clone()).unwrap();
    drop(client.acquire(ACME, 1).await.unwrap());
    client
}

fn level(client: &Client) -> ScopeLevel {
    client.levels(ACME).unwrap()[0]
}

#[tokio::test(start_paused = true)]
async fn a_client_looks_gives_back_and_charges() {
    let client = leased(&Lender::new(100, None)).await;
    assert_eq!(level(&client).left.whole(), 99);
    assert!(level(&client).is_leased);
    client.give_back(ACME, 1000).unwrap();
    assert_eq!(level(&client).left.whole(), 100, "no more than the burst");
    client.charge(ACME, 150).unwrap();
    assert_eq!(level(&client).next_in, Some(Duration::from_millis(510)));
    assert!(client.try_admit(&Charge::of(ACME)).is_err());
    sleep(Duration::from_millis(510)).await;
    assert!(client.try_admit(&Charge::of(ACME)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_is_none_has_no_balance() {
    let client = leased(&Lender::new(100, None)).await;
    for scope in ["tenant", "user/ann", "tenant/"] {
        assert!(matches!(
            client.levels(scope),
            Err(AcquireError::Scope { .. })
        ));
        assert!(client.give_back(scope, 1).is_err());
        assert!(client.charge(scope, 1).is_err());
    }
}
