//! A real coordinator: the `tollgate` binary.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::connection::get_once;
use crate::process::Process;
use crate::{artifact, ports, wait};

/// Longest time for a start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A running coordinator.
#[derive(Debug)]
pub struct Coordinator {
    /// The process, to freeze or kill it.
    pub process: Process,
    dir: PathBuf,
    name: String,
    limits: String,
    environment: Vec<(OsString, OsString)>,
    starts: u32,
    grpc: SocketAddr,
    http: SocketAddr,
}

/// Leases of one resource in the coordinator's lease table; rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeLeases {
    /// Capacity of the resource; infinite without a limit.
    pub capacity: f64,
    /// Whether it is in learning mode.
    pub learning: bool,
    /// Leases by client.
    pub clients: Vec<ClientLease>,
    /// Attempts that clients have reported, and the part of them that they refused.
    pub traffic: (u64, u64),
}

/// Lease of one client; rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLease {
    /// Client id, `<node id>/<random>`.
    pub id: String,
    /// Wants of its last request.
    pub wants: f64,
    /// Leased rate.
    pub has: f64,
}

// === impl Coordinator ===

impl Coordinator {
    /// Starts a coordinator with `limits`, the YAML of that name, as the first of a new fleet: no
    /// Envoy can hold a lease yet, so there is nothing to learn.
    ///
    /// # Errors
    /// When the binary is missing, or ends or does not serve in time.
    pub async fn start(dir: &Path, limits: &str) -> Result<Self> {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (grpc, http) = (local(ports::free()?), local(ports::free()?));
        let flags = &["--skip-learning"];
        let process = spawn(dir, "coordinator-0", limits, (grpc, http), flags, &[])?;
        let mut coordinator = Self {
            process,
            dir: dir.to_owned(),
            name: "coordinator".to_owned(),
            limits: limits.to_owned(),
            environment: Vec::new(),
            starts: 1,
            grpc,
            http,
        };
        coordinator.ready().await?;
        Ok(coordinator)
    }

    /// Starts one of several coordinators in `dir`, called `name`, with `config`, YAML without
    /// `listen`, on the ports `grpc` and `http` and with further variables of the environment. It
    /// may not be [ready](Self::ready) yet: nodes of a cluster wait for etcd.
    ///
    /// # Errors
    /// When the binary is missing.
    pub fn spawn(
        dir: &Path,
        name: &str,
        config: &str,
        (grpc, http): (SocketAddr, SocketAddr),
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Self> {
        let first = format!("{name}-0");
        let process = spawn(dir, &first, config, (grpc, http), &[], &environment)?;
        Ok(Self {
            process,
            dir: dir.to_owned(),
            name: name.to_owned(),
            limits: config.to_owned(),
            environment,
            starts: 1,
            grpc,
            http,
        })
    }

    /// Starts it again on the same ports, after it was killed; it begins in learning mode.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn restart(&mut self) -> Result<()> {
        self.spawn_again()?;
        self.ready().await
    }

    /// Starts it again as [`Self::restart`] does, without waiting until it serves.
    ///
    /// # Errors
    /// When the binary is missing.
    pub fn spawn_again(&mut self) -> Result<()> {
        let name = format!("{}-{}", self.name, self.starts);
        let ports = (self.grpc, self.http);
        self.process = spawn(
            &self.dir,
            &name,
            &self.limits,
            ports,
            &[],
            &self.environment,
        )?;
        self.starts += 1;
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it ends or does not in time.
    pub async fn ready(&mut self) -> Result<()> {
        let process = &mut self.process;
        (self.grpc, self.http) = wait::until("the coordinator to serve", START_LIMIT, async || {
            process.check_running()?;
            ready_line(&process.log()).context("the coordinator has not logged that it is ready")
        })
        .await?;
        Ok(())
    }

    /// Writes `limits`, YAML with a section of that name, into the file of the running coordinator,
    /// and waits until the coordinator has applied it.
    ///
    /// # Errors
    /// When the coordinator refuses it or does not answer.
    pub async fn reconfigure(&mut self, limits: &str) -> Result<()> {
        let (taken, refused) = self.reloads().await?;
        let config = self
            .dir
            .join(format!("{}-{}.yaml", self.name, self.starts - 1));
        let text = fs::read_to_string(&config)?;
        let (listen, _) = text.split_once('\n').context("a line with addresses")?;
        fs::write(&config, configuration(listen, limits))?;
        self.limits = limits.to_owned();
        wait::until("the coordinator to reload", START_LIMIT, async || {
            let now = self.reloads().await?;
            ensure!(now.1 == refused, "the coordinator refused its new file");
            ensure!(
                now.0 > taken,
                "the coordinator has not applied its new file"
            );
            Ok(())
        })
        .await
    }

    /// Number of applied and of refused changes of its file.
    async fn reloads(&self) -> Result<(u64, u64)> {
        let count = async |result: &str| {
            let name = format!("tollgate_reloads_total{{result=\"{result}\"}}");
            anyhow::Ok(self.metric(&name).await? as u64)
        };
        Ok((count("taken").await?, count("refused").await?))
    }

    /// All its Prometheus metrics: values by name with labels, as they are written.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub async fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let text = get_once(self.http, "/metrics", &[]).await?.body;
        let samples = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(samples.collect())
    }

    /// The address of the admin API and the metrics.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The address of the lease service.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// One of its metrics, by its name with labels.
    ///
    /// # Errors
    /// When the coordinator does not answer, or has no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let value = self.metrics().await?.get(name).copied();
        value.with_context(|| format!("no metric {name}"))
    }

    /// Leases of the resource (`scope`, requests); `None` for an unknown scope.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub async fn leases(&self, scope: &str) -> Result<Option<ScopeLeases>> {
        let answer = get_once(self.http, &format!("/v1/scopes/{scope}"), &[]).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        ensure!(
            answer.status == 200,
            "the coordinator answers {}: {}",
            answer.status,
            answer.body
        );
        let scope: Value = serde_json::from_str(&answer.body)?;
        ScopeLeases::of_requests(&scope)
            .with_context(|| format!("unknown form of {scope}"))
            .map(Some)
    }
}

// === impl ScopeLeases ===

impl ScopeLeases {
    /// Leased rate of the Envoy with node id `node`.
    pub fn has(&self, node: &str) -> f64 {
        let of_node = |client: &&ClientLease| {
            client
                .id
                .strip_prefix(node)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        self.clients
            .iter()
            .filter(of_node)
            .map(|client| client.has)
            .sum()
    }

    /// Sum of all unexpired leases.
    pub fn sum_has(&self) -> f64 {
        self.clients.iter().map(|client| client.has).sum()
    }

    fn of_requests(scope: &Value) -> Option<Self> {
        let requests = &scope["units"]["requests"];
        let clients = requests["clients"].as_array()?.iter().map(|client| {
            Some(ClientLease {
                id: client["client"].as_str()?.to_owned(),
                wants: client["wants"].as_f64()?,
                has: client["has"].as_f64()?,
            })
        });
        let capacity = requests["capacity"].as_f64().unwrap_or(f64::INFINITY);
        Some(Self {
            capacity,
            learning: requests["learning_ms"].as_u64()? > 0,
            clients: clients.collect::<Option<_>>()?,
            traffic: (
                requests["traffic"]["attempts"].as_u64()?,
                requests["traffic"]["refused"].as_u64()?,
            ),
        })
    }
}

fn spawn(
    dir: &Path,
    name: &str,
    limits: &str,
    (grpc, http): (SocketAddr, SocketAddr),
    flags: &[&str],
    environment: &[(OsString, OsString)],
) -> Result<Process> {
    let config = dir.join(format!("{name}.yaml"));
    fs::write(
        &config,
        configuration(
            &format!("listen: {{grpc: \"{grpc}\", http: \"{http}\"}}"),
            limits,
        ),
    )?;
    let mut command = Command::new(artifact::coordinator()?);
    command.args(["serve", "--config"]).arg(&config).args(flags);
    let variables = environment.iter().map(|(name, value)| (name, value));
    Process::start(dir, name, command.envs(variables))
}

/// A configuration. Where it names no store it keeps nothing: each start has a file of its own, and the disk
/// may be slow while other things are compiled.
fn configuration(listen: &str, rest: &str) -> String {
    let store = if rest.contains("store:") || rest.contains("cluster:") {
        ""
    } else {
        "store: {path: memory}\n"
    };
    format!("{listen}\n{store}{rest}")
}

/// The addresses in `tollgate ready grpc=<addr> http=<addr>`.
fn ready_line(log: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = log
        .lines()
        .find_map(|line| line.strip_prefix("tollgate ready grpc="))?;
    let (grpc, http) = line.split_once(" http=")?;
    Some((grpc.parse().ok()?, http.trim().parse().ok()?))
}
