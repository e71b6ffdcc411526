//! gRPC's xDS servers (gRFC A77): an interval for each bucket, counts that are forgotten with each
//! assignment, and buckets that are dropped when their assignment is over.

use super::*;

const LIMITS: &str =
    "- {match: 'tenant/*', requests: {rate: 1000, headroom: 0, lease: 4s, refresh: 500ms}}";

/// A gRPC server with one bucket.
struct Server {
    proxy: Proxy,
    tenant: &'static str,
    /// Requests per second that come.
    load: f64,
    interval: Duration,
    counted_from: Instant,
    reported_at: Instant,
    assigned: Option<(f64, Instant)>,
}

impl Server {
    async fn start(coordinator: &Coordinator, tenant: &'static str, load: f64) -> Self {
        let now = Instant::now();
        Self {
            proxy: Proxy::start(coordinator, "edge", &[(tenant, 0, 1)]).await,
            tenant,
            load,
            interval: Duration::from_millis(1600),
            counted_from: now,
            reported_at: now,
            assigned: None,
        }
    }

    /// Serves for `time`. An error if the bucket was dropped.
    async fn serve(&mut self, time: Duration) -> Result<(), &'static str> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let next = (self.reported_at + self.interval).min(end);
            tokio::select! {
                (strategy, seconds) = self.proxy.assigned(self.tenant) => {
                    let lives = Duration::from_secs(seconds.try_into().unwrap());
                    self.assigned = Some((per_second(strategy), Instant::now() + lives));
                    self.counted_from = Instant::now();
                }
                () = tokio::time::sleep_until(next) => {
                    if next < end {
                        self.report().await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn report(&mut self) -> Result<(), &'static str> {
        let now = Instant::now();
        if self.assigned.is_none_or(|(_, until)| until <= now) {
            return Err("dropped");
        }
        let counted = now
            .saturating_duration_since(self.counted_from)
            .as_secs_f64();
        let requests = (self.load * counted) as u64;
        // Only the first message has the domain. The time is that of its counts, and not in whole
        // seconds.
        let mut message = report("", &[(self.tenant, 0, requests)]);
        let elapsed = Duration::from_secs_f64(counted).try_into().ok();
        message.bucket_quota_usages[0].time_elapsed = elapsed;
        self.proxy.reports.send(message).await.unwrap();
        (self.reported_at, self.counted_from) = (now, now);
        Ok(())
    }
}

#[tokio::test]
async fn a_grpc_server_keeps_its_buckets_and_is_assigned_what_it_wants() {
    let coordinator = coordinator(LIMITS).await;
    let mut server = Server::start(&coordinator, "acme", 200.0).await;
    server.serve(Duration::from_secs(8)).await.unwrap();
    let (rate, _) = server.assigned.unwrap();
    assert!((160.0..=280.0).contains(&rate), "{rate}");
    let actions = coordinator.get("/metrics").await.body;
    assert!(actions.contains("tollgate_rlqs_actions_total{action=\"abandon\"} 0"));
}
