//! Calls to one of etcd's endpoints, and to the next after a failure.

use std::time::Duration;

use etcd_client::{Txn, TxnResponse};
use tokio::sync::{Mutex, watch};
use tollgate_net::files::FileReader;

use super::{Client, EtcdError, connect, within};
use crate::config::EtcdConfig;

/// Connection to etcd that keeps to one endpoint for as long as that answers in time.
///
/// A balanced client would go on trying an endpoint that hangs, which a keep-alive cannot afford
/// more than once per lease.
#[derive(Debug)]
pub struct EtcdLink {
    config: EtcdConfig,
    files: FileReader,
    /// Number of endpoints given up so far; the one in use follows from it.
    turns: watch::Sender<usize>,
    slot: Mutex<Option<(usize, OpaqueClient)>>,
}

/// A client with a `Debug` that shows nothing.
struct OpaqueClient(Client);

// === impl EtcdLink ===

impl EtcdLink {
    /// Creates a link to the etcd of `config`; it connects when it is used.
    pub fn new(config: EtcdConfig) -> Self {
        Self {
            config,
            files: FileReader::default(),
            turns: watch::Sender::new(0),
            slot: Mutex::default(),
        }
    }

    /// Awaits `call` for at most `limit`. After an error the next call goes to another endpoint.
    ///
    /// # Errors
    /// Those of [`connect`] and of `call`, and [`EtcdError::Timeout`].
    pub async fn call<T>(
        &self,
        limit: Duration,
        call: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, EtcdError> {
        let turn = *self.turns.borrow();
        let result = within(limit, async {
            let client = self.client(turn).await?;
            Ok::<_, EtcdError>(call(client).await?)
        });
        let result = result.await;
        if result.is_err() {
            // Another failed call may have left the endpoint already.
            self.turns.send_if_modified(|now| {
                let is_first = *now == turn;
                *now = now.wrapping_add(usize::from(is_first));
                is_first
            });
        }
        result
    }

    /// Makes `txn` within `limit`, see [`EtcdLink::call`].
    ///
    /// # Errors
    /// As of [`EtcdLink::call`].
    pub async fn txn(&self, limit: Duration, txn: Txn) -> Result<TxnResponse, EtcdError> {
        self.call(limit, async |mut client| client.txn(txn).await)
            .await
    }

    /// Changes when another endpoint is used.
    pub fn turns(&self) -> watch::Receiver<usize> {
        self.turns.subscribe()
    }

    async fn client(&self, turn: usize) -> Result<Client, EtcdError> {
        let mut slot = self.slot.lock().await;
        if let Some((of, OpaqueClient(client))) = &*slot
            && *of == turn
        {
            return Ok(client.clone());
        }
        let endpoints = &self.config.endpoints;
        let index = turn.checked_rem(endpoints.len()).unwrap_or(0);
        let endpoint = endpoints.get(index..).unwrap_or_default();
        let endpoint = endpoint.get(..1).unwrap_or_default();
        let client = connect(&self.config, &self.files, endpoint).await?;
        *slot = Some((turn, OpaqueClient(client.clone())));
        Ok(client)
    }
}

// === impl OpaqueClient ===

impl std::fmt::Debug for OpaqueClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpaqueClient")
    }
}
