//! A real Envoy with a generated configuration.
//!
//! Its listeners come from a file that is swapped to change the configuration of a running Envoy,
//! as a control plane would. Ports are chosen by the kernel and read back from the admin address,
//! so any number of Envoys run side by side.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::connection::{Connection, get_once};
use crate::filter::UPSTREAM;
use crate::process::Process;
use crate::{artifact, wait};

mod configuration;

use configuration::{bootstrap, listener_discovery};

/// Longest time for a start or a change of configuration. Most of it is the compilation of the filter on a
/// busy machine.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);
/// Drain time of the connections of a replaced configuration.
const DRAIN_SECONDS: &str = "2";
/// Time until an Envoy ends after another has taken over.
const PARENT_SECONDS: &str = "3";

/// Specification of an Envoy.
#[derive(Clone, Debug)]
pub struct EnvoySpec {
    /// Node id, and the name of its log.
    pub name: String,
    /// Number of worker threads.
    pub workers: u32,
    /// Upstream of every request that the filters admit.
    pub upstream: SocketAddr,
    /// Whether the upstream speaks HTTP/2.
    upstream_http2: bool,
    /// gRPC addresses of the coordinators; the Tollgate filter calls any of them.
    pub coordinators: Vec<SocketAddr>,
    /// Further gRPC clusters by name.
    pub clusters: Vec<(String, SocketAddr)>,
    /// A file with more clusters, which Envoy reads as a discovery response.
    pub clusters_file: Option<PathBuf>,
    /// Listeners by name, each with its HTTP filters before the router.
    pub listeners: Vec<(String, Vec<Value>)>,
    /// The virtual hosts of every listener; by default one that sends everything upstream.
    pub virtual_hosts: Value,
    /// The access logs of every listener.
    pub access_log: Vec<Value>,
    /// Transport of the listeners below HTTP; by default plain TCP.
    pub transport_socket: Option<Value>,
    /// Envoy's rules that turn parts of statistics' names into labels.
    pub stats_config: Option<Value>,
    /// Folder in which it looks for dynamic modules by their names.
    pub modules: Option<PathBuf>,
    /// Port of the only listener; with zero the kernel chooses. A restarted Envoy, or one that takes over,
    /// needs the same.
    pub port: u16,
    /// Index among Envoys that take over from one another in a hot restart, with files in the same
    /// directory: zero for the first.
    pub restart_epoch: Option<u32>,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    /// The process, to freeze, kill or measure it.
    pub process: Process,
    admin: SocketAddr,
    listeners: BTreeMap<String, SocketAddr>,
    listeners_file: PathBuf,
    spec: EnvoySpec,
    version: u64,
}

/// A started Envoy that may not serve yet.
#[derive(Debug)]
struct StartingEnvoy {
    process: Process,
    admin_file: PathBuf,
    listeners_file: PathBuf,
    spec: EnvoySpec,
}

// === impl EnvoySpec ===

impl EnvoySpec {
    /// An Envoy with one listener, called `main`.
    pub fn new(name: &str, workers: u32, upstream: SocketAddr, filters: Vec<Value>) -> Self {
        Self {
            name: name.to_owned(),
            workers,
            upstream,
            upstream_http2: false,
            coordinators: Vec::new(),
            clusters: Vec::new(),
            clusters_file: None,
            listeners: vec![("main".to_owned(), filters)],
            virtual_hosts: json!([{
                "name": "all",
                "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "route": {"cluster": UPSTREAM}}],
            }]),
            access_log: Vec::new(),
            transport_socket: None,
            stats_config: None,
            modules: None,
            port: 0,
            restart_epoch: None,
        }
    }

    /// The same, with an upstream that speaks HTTP/2 instead of HTTP/1.1.
    #[must_use]
    pub fn upstream_over_http2(mut self) -> Self {
        self.upstream_http2 = true;
        self
    }

    /// The same, with a coordinator to ask.
    #[must_use]
    pub fn asking(mut self, coordinator: SocketAddr) -> Self {
        self.coordinators = vec![coordinator];
        self
    }

    /// The same, with several coordinators to ask, whichever is healthy.
    #[must_use]
    pub fn asking_any_of(mut self, coordinators: Vec<SocketAddr>) -> Self {
        self.coordinators = coordinators;
        self
    }
}

// === impl Envoy ===

impl Envoy {
    /// Starts an Envoy with its files in `dir` and waits until it serves.
    ///
    /// # Errors
    /// When there is no Envoy, or when it ends or does not serve in time.
    pub async fn start(dir: &Path, spec: &EnvoySpec) -> Result<Self> {
        StartingEnvoy::spawn(dir, spec)?.serving().await
    }

    /// Starts several Envoys at once with their files in `dir`, and waits until all of them serve.
    ///
    /// # Errors
    /// As [`Envoy::start`].
    pub async fn start_all(dir: &Path, specs: &[EnvoySpec]) -> Result<Vec<Self>> {
        let starting = specs.iter().map(|spec| StartingEnvoy::spawn(dir, spec));
        let starting: Vec<_> = starting.collect::<Result<_>>()?;
        let mut envoys = Vec::new();
        for envoy in starting {
            envoys.push(envoy.serving().await?);
        }
        Ok(envoys)
    }

    /// Lines of the log, from warnings on, that come of the filter: its own, and Envoy's of what it asked.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.process.log();
        let is_complaint = |line: &&str| {
            let of = |level: &str| ["wasm", "dynamic_modules"].map(|by| format!("[{level}][{by}]"));
            let mut all = ["warning", "error", "critical"].into_iter().flat_map(of);
            all.any(|mark| line.contains(&mark))
        };
        log.lines()
            .filter(is_complaint)
            .map(str::to_owned)
            .collect()
    }

    /// The address of the listener `main`, or of the only one.
    ///
    /// # Panics
    /// When there is no listener; a started Envoy has one.
    pub fn address(&self) -> SocketAddr {
        *self
            .listeners
            .get("main")
            .or_else(|| self.listeners.values().next())
            .expect("a started Envoy has a listener")
    }

    /// The address of a listener by name.
    pub fn listener(&self, name: &str) -> Option<SocketAddr> {
        self.listeners.get(name).copied()
    }

    /// Like [`Envoy::configure`] with the same filters and other virtual hosts.
    ///
    /// # Errors
    /// As [`Envoy::configure`].
    pub async fn route(&mut self, virtual_hosts: Value) -> Result<bool> {
        self.set_virtual_hosts(virtual_hosts);
        let listeners = self.spec.listeners.clone();
        self.configure(&listeners).await
    }

    /// Sets the virtual hosts that the next [`Envoy::configure`] brings.
    pub fn set_virtual_hosts(&mut self, virtual_hosts: Value) {
        self.spec.virtual_hosts = virtual_hosts;
    }

    /// Swaps the configuration of the listeners and waits until Envoy has taken or refused it.
    /// Returns whether Envoy took it.
    ///
    /// # Errors
    /// When Envoy does not look at it in time.
    pub async fn configure(&mut self, listeners: &[(String, Vec<Value>)]) -> Result<bool> {
        let taken = self.stat("listener_manager.lds.update_success").await?;
        let refused = self.stat("listener_manager.lds.update_rejected").await?;
        self.version += 1;
        swap_in(
            &self.listeners_file,
            &listener_discovery(self.version, &self.spec, listeners),
        )?;
        wait::until("a new configuration", START_LIMIT, async || {
            self.process.check_running()?;
            if get_stat(self.admin, "listener_manager.lds.update_rejected").await? > refused {
                return Ok(false);
            }
            let now = get_stat(self.admin, "listener_manager.lds.update_success").await?;
            ensure!(now > taken, "neither taken nor refused");
            let warming = get_stat(self.admin, "listener_manager.total_listeners_warming").await?;
            ensure!(warming == 0, "still warming");
            Ok(true)
        })
        .await
    }

    /// Drains all listeners through the admin address: they stop accepting connections after the drain
    /// time.
    ///
    /// # Errors
    /// When the admin address does not answer, or refuses.
    pub async fn drain(&self) -> Result<()> {
        let request = b"POST /drain_listeners?graceful HTTP/1.1\r\nhost: localhost\r\n\
                        content-length: 0\r\n\r\n";
        let answer = Connection::open(self.admin)
            .await?
            .answer_to(request)
            .await?;
        ensure!(answer.status == 200, "admin answers {answer:?}");
        Ok(())
    }

    /// Value of a counter or gauge by its full name; zero when Envoy does not know it (yet).
    ///
    /// # Errors
    /// When the admin address does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        get_stat(self.admin, name).await
    }

    /// All statistics in Prometheus' format.
    ///
    /// # Errors
    /// When the admin address does not answer.
    pub async fn prometheus(&self) -> Result<String> {
        let answer = get_once(self.admin, "/stats/prometheus", &[]).await?;
        ensure!(answer.status == 200, "admin answers {}", answer.status);
        Ok(answer.body)
    }

    /// All counters and gauges whose name contains `part`.
    ///
    /// # Errors
    /// When the admin address does not answer.
    pub async fn stats(&self, part: &str) -> Result<BTreeMap<String, u64>> {
        get_stats(self.admin, part).await
    }
}

// === impl StartingEnvoy ===

impl StartingEnvoy {
    fn spawn(dir: &Path, spec: &EnvoySpec) -> Result<Self> {
        let file = |suffix: &str| dir.join(format!("{}.{suffix}", spec.name));
        let listeners_file = file("listeners.json");
        let bootstrap_file = file("bootstrap.json");
        let admin_file = file("admin");
        let _ = fs::remove_file(&admin_file);
        swap_in(
            &listeners_file,
            &listener_discovery(0, spec, &spec.listeners),
        )?;
        fs::write(
            &bootstrap_file,
            bootstrap(spec, &listeners_file).to_string(),
        )?;
        let mut command = Command::new(artifact::envoy()?);
        command
            // Envoy does not tell dynamic modules the node's id.
            .env("TOLLGATE_NODE", &spec.name)
            .arg("--config-path")
            .arg(&bootstrap_file)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--concurrency", &spec.workers.to_string()])
            .args(["--drain-time-s", DRAIN_SECONDS])
            .args(["--log-level", "warning"])
            .args([
                "--component-log-level",
                "wasm:info,config:info,upstream:info",
            ]);
        if let Some(modules) = &spec.modules {
            command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", modules);
        }
        restart_arguments(&mut command, dir, spec.restart_epoch)?;
        let process = Process::start(dir, &spec.name, &mut command)?;
        Ok(Self {
            process,
            admin_file,
            listeners_file,
            spec: spec.clone(),
        })
    }

    /// Waits until it serves.
    async fn serving(mut self) -> Result<Envoy> {
        let condition = format!("{} to serve", self.spec.name);
        let (admin, listeners) = wait::until(&condition, START_LIMIT, async || {
            self.process.check_running()?;
            let admin = fs::read_to_string(&self.admin_file)?.parse()?;
            Ok((admin, serving(admin, &self.spec.listeners).await?))
        })
        .await?;
        Ok(Envoy {
            process: self.process,
            admin,
            listeners,
            listeners_file: self.listeners_file,
            spec: self.spec,
            version: 0,
        })
    }
}

// === free functions ===

/// Adds the arguments of a hot restart: the first Envoy writes its base id into a file, the next reads it.
fn restart_arguments(command: &mut Command, dir: &Path, epoch: Option<u32>) -> Result<()> {
    let Some(epoch) = epoch else {
        command.arg("--disable-hot-restart");
        return Ok(());
    };
    let base_id = dir.join("base-id");
    command
        .args(["--restart-epoch", &epoch.to_string()])
        .args(["--parent-shutdown-time-s", PARENT_SECONDS]);
    match epoch {
        0 => command
            .arg("--use-dynamic-base-id")
            .arg("--base-id-path")
            .arg(base_id),
        _ => command
            .arg("--base-id")
            .arg(fs::read_to_string(base_id)?.trim()),
    };
    Ok(())
}

async fn serving(
    admin: SocketAddr,
    wanted: &[(String, Vec<Value>)],
) -> Result<BTreeMap<String, SocketAddr>> {
    let ready = get_once(admin, "/ready", &[]).await?;
    ensure!(ready.status == 200, "not ready: {}", ready.body.trim());
    let answer = get_once(admin, "/listeners?format=json", &[]).await?;
    let known: Value = serde_json::from_str(&answer.body)?;
    let mut listeners = BTreeMap::new();
    for status in known["listener_statuses"].as_array().into_iter().flatten() {
        let name = status["name"]
            .as_str()
            .context("a listener without a name")?;
        let address = &status["local_address"]["socket_address"];
        let port = address["port_value"]
            .as_u64()
            .context("a listener without a port")?;
        listeners.insert(
            name.to_owned(),
            SocketAddr::from(([127, 0, 0, 1], port.try_into()?)),
        );
    }
    for (name, _) in wanted {
        ensure!(
            listeners.contains_key(name),
            "there is no listener {name} yet"
        );
    }
    Ok(listeners)
}

async fn get_stat(admin: SocketAddr, name: &str) -> Result<u64> {
    Ok(get_stats(admin, name)
        .await?
        .get(name)
        .copied()
        .unwrap_or(0))
}

async fn get_stats(admin: SocketAddr, part: &str) -> Result<BTreeMap<String, u64>> {
    let path = format!("/stats?format=json&filter={}", part.replace('.', "%5C."));
    let answer = get_once(admin, &path, &[]).await?;
    ensure!(
        answer.status == 200,
        "admin answers {}: {}",
        answer.status,
        answer.body
    );
    let all: Value = serde_json::from_str(&answer.body)?;
    let values = all["stats"].as_array().into_iter().flatten();
    Ok(values
        .filter_map(|stat| Some((stat["name"].as_str()?.to_owned(), stat["value"].as_u64()?)))
        .collect())
}

/// Replaces `file` by a move, which Envoy notices and which never shows it half a file.
pub(crate) fn swap_in(file: &Path, content: &Value) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, content.to_string())?;
    fs::rename(&new, file).with_context(|| format!("moving {}", file.display()))
}
