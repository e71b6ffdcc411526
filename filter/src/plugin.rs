//! The contexts that Envoy speaks to: a root per configuration, and a context per stream.
//!
//! All that is here is translation. A VM's workers are kept beside the contexts, one for each
//! cluster of coordinators and, without a `vm_id`, each plugin, because a new configuration is a new
//! root context in the same VM and must find the balances of the one before.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::Action;
use tollgate_engine::{Decision, Identity, InUse, Refusal};

use crate::binding::Binding;
use crate::bound_stream::BoundStream;
use crate::config::{Config, ConfigError};
use crate::host::{Envoy, Host, HostError, Kind, Level, configuration, grpc_message};
use crate::refusal::Protocol;
use crate::worker::Worker;

type Shared = Rc<RefCell<Worker<Envoy>>>;

thread_local! {
    static WORKERS: RefCell<BTreeMap<(String, String), Shared>> =
        const { RefCell::new(BTreeMap::new()) };
    /// Configurations in use, with their root contexts. There are few; the SDK would find the root by a hash
    /// once more for each stream.
    static PLUGINS: RefCell<Vec<(u32, Rc<Plugin>)>> = const { RefCell::new(Vec::new()) };
}

/// A root context: one configuration in one VM.
#[derive(Debug)]
pub(crate) struct Root {
    context: u32,
    plugin: Option<Rc<Plugin>>,
}

/// A configuration that is in use.
#[derive(Debug)]
struct Plugin {
    worker: Shared,
    binding: Binding,
    period: Cell<Duration>,
    /// Keeps its rules.
    _user: InUse,
}

/// A stream; the worker remembers nothing of most, but of those that are held or counted.
#[derive(Debug)]
struct Stream {
    plugin: Rc<Plugin>,
    context: u32,
    bound: BoundStream,
    /// True if the worker remembers something of it.
    known: bool,
}

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
enum Rejected {
    /// Contexts are never entered while another runs.
    #[error("the worker is busy")]
    Reentered,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Host(#[from] HostError),
}

// === impl Root ===

impl Root {
    /// The root that Envoy calls `context`, not yet configured.
    pub(crate) fn new(context: u32) -> Self {
        Self {
            context,
            plugin: None,
        }
    }

    /// Makes ticks come as often as the worker needs them.
    fn adjust_period(&self, plugin: &Plugin, worker: &Worker<Envoy>) {
        // The worker may have spoken of a stream of another configuration, whose root has ticks of
        // its own.
        if Envoy.select(self.context).is_ok() {
            plugin.adjust_period(worker);
        }
    }

    /// Leaves the worker, which may have a stream of this root, and makes no more streams.
    fn leave(&mut self) {
        change_plugins(|plugins| plugins.retain(|(root, _)| *root != self.context));
        if let Some(plugin) = self.plugin.take()
            && let Ok(mut worker) = plugin.worker.try_borrow_mut()
        {
            worker.remove_root(self.context);
        }
    }

    fn load(&self) -> Result<Plugin, Rejected> {
        let host = Envoy;
        let (mut config, unknown) = Config::parse(&configuration()?)?;
        config.compile(&host)?;
        let worker = worker(&config)?;
        let user = InUse::default();
        let binding = {
            let mut worker = worker.try_borrow_mut().map_err(|_| Rejected::Reentered)?;
            Binding::new(&mut worker, &config, &unknown, &user)?
        };
        host.set_tick_period(config.engine.tick)?;
        Ok(Plugin {
            worker,
            binding,
            period: Cell::new(config.engine.tick),
            _user: user,
        })
    }
}

impl Context for Root {
    fn on_grpc_call_response(&mut self, token: u32, status: u32, size: usize) {
        let Some(plugin) = &self.plugin else { return };
        let Ok(mut worker) = plugin.worker.try_borrow_mut() else {
            return;
        };
        match (status, grpc_message(size)) {
            (0, Ok(answer)) => worker.handle_answer(token, &answer),
            (status, _) => worker.handle_failure(token, status),
        }
        self.adjust_period(plugin, &worker);
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        let Some(plugin) = &self.plugin else { return };
        let Ok(mut worker) = plugin.worker.try_borrow_mut() else {
            return;
        };
        match grpc_message(size) {
            Ok(message) => worker.handle_nudge(token, &message),
            Err(error) => worker.complain(&error),
        }
        self.adjust_period(plugin, &worker);
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if let Some(plugin) = &self.plugin
            && let Ok(mut worker) = plugin.worker.try_borrow_mut()
        {
            worker.handle_watch_end(token, status);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        match self.load() {
            Ok(plugin) => {
                self.leave();
                if let Ok(mut worker) = plugin.worker.try_borrow_mut() {
                    worker.add_root(self.context);
                }
                let plugin = Rc::new(plugin);
                let known = (self.context, Rc::clone(&plugin));
                change_plugins(|plugins| plugins.push(known));
                self.plugin = Some(plugin);
            }
            Err(error) => {
                reject(&error);
                return false;
            }
        }
        true
    }

    fn on_tick(&mut self) {
        let Some(plugin) = &self.plugin else { return };
        if let Ok(mut worker) = plugin.worker.try_borrow_mut() {
            worker.enter_root(self.context);
            worker.handle_tick();
            self.adjust_period(plugin, &worker);
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.leave();
    }
}

// === impl Plugin ===

impl Plugin {
    /// Makes ticks of the context at hand come as often as the worker needs them.
    fn adjust_period(&self, worker: &Worker<Envoy>) {
        let period = worker.tick_period();
        if period != self.period.get() && Envoy.set_tick_period(period).is_ok() {
            self.period.set(period);
        }
    }
}

// === impl Stream ===

impl Stream {
    #[cold]
    fn refuse(&self, worker: &Worker<Envoy>, refusal: Refusal) -> Action {
        match worker.answer(refusal, Protocol::at_hand(&Envoy)) {
            Ok(()) => Action::Pause,
            Err(error) => {
                Envoy.log(Level::Error, &format!("tollgate: {error}"));
                Action::Continue
            }
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let plugin = &self.plugin;
        let Ok(mut worker) = plugin.worker.try_borrow_mut() else {
            return Action::Continue;
        };
        let decision = plugin.binding.admit(&mut worker, &mut self.bound);
        self.known = worker.remembers(self.context);
        if worker.is_hurried() {
            plugin.adjust_period(&worker);
        }
        match decision {
            Decision::Admit => Action::Continue,
            Decision::Hold | Decision::Queue(_) => {
                self.known = true;
                Action::Pause
            }
            Decision::Deny(refusal) => self.refuse(&worker, refusal),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.known
            && let Ok(mut worker) = self.plugin.worker.try_borrow_mut()
        {
            worker.forget(&mut self.bound);
        }
        self.plugin.binding.leave(&mut self.bound);
    }
}

/// A stream of a root context whose configuration was refused; Envoy makes none.
struct Unconfigured;

impl Context for Unconfigured {}
impl HttpContext for Unconfigured {}

// === free functions ===

/// Makes the context of a stream of the root context `root`.
pub(crate) fn stream(context: u32, root: u32) -> Box<dyn HttpContext> {
    let plugin = PLUGINS.with(|plugins| {
        let plugins = plugins.try_borrow().ok()?;
        let (_, plugin) = plugins.iter().find(|(known, _)| *known == root)?;
        Some(Rc::clone(plugin))
    });
    match plugin {
        Some(plugin) => Box::new(Stream {
            bound: plugin.binding.begin(context),
            plugin,
            context,
            known: false,
        }),
        None => Box::new(Unconfigured),
    }
}

/// Changes the configurations in use; contexts are never entered while another one does.
fn change_plugins(change: impl FnOnce(&mut Vec<(u32, Rc<Plugin>)>)) {
    PLUGINS.with(|plugins| {
        if let Ok(mut plugins) = plugins.try_borrow_mut() {
            change(&mut plugins);
        }
    });
}

/// The VM's worker for the coordinators of `config`.
fn worker(config: &Config) -> Result<Shared, HostError> {
    let (node, plugin) = (node_id(&Envoy)?, plugin_id(&Envoy)?);
    WORKERS.with(|workers| {
        let Ok(mut workers) = workers.try_borrow_mut() else {
            return Ok(new_worker(node, plugin, config));
        };
        let known = workers.entry((config.engine.coordinator.clone(), plugin.clone()));
        let new = || new_worker(node, plugin, config);
        Ok(Rc::clone(known.or_insert_with(new)))
    })
}

fn new_worker(node: String, plugin: String, config: &Config) -> Shared {
    // WASI's randomness does not fail in Envoy; the clock is what else differs between workers.
    let worker = getrandom::u64().unwrap_or_else(|_| Envoy.now().as_nanos());
    let mut process = worker.to_le_bytes().repeat(2).try_into().unwrap_or([0; 16]);
    let _ = getrandom::fill(&mut process);
    let identity = Identity {
        worker,
        node,
        plugin,
        process: u128::from_le_bytes(process),
    };
    Rc::new(RefCell::new(Worker::new(Envoy, identity, config)))
}

fn node_id(host: &Envoy) -> Result<String, HostError> {
    let id = match host.property(&["xds", "node", "id"])? {
        Some(id) => id,
        // Envoys before 1.24 had it here.
        None => host.property(&["node", "id"])?.unwrap_or_default(),
    };
    Ok(String::from_utf8_lossy(&id).into_owned())
}

/// The root id of a plugin without a `vm_id`, since shared data then is that of all plugins without one.
/// An update of the plugin keeps its root id, which with Istio is its name.
fn plugin_id(host: &Envoy) -> Result<String, HostError> {
    let vm_id = host.property(&["plugin_vm_id"])?.unwrap_or_default();
    if !vm_id.trim_ascii().is_empty() {
        return Ok(String::new());
    }
    let root_id = host.property(&["plugin_root_id"])?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&root_id).into_owned())
}

/// Says why a configuration is refused; Envoy keeps the one before.
fn reject(error: &Rejected) {
    Envoy.log(
        Level::Error,
        &format!("tollgate: configuration refused: {error}"),
    );
    // Counted at once: a VM that refuses its configuration never ticks.
    let counted = Envoy
        .define(Kind::Counter, "tollgate.config_rejected")
        .and_then(|metric| Envoy.increment(metric, 1));
    if let Err(error) = counted {
        Envoy.log(Level::Error, &format!("tollgate: {error}"));
    }
}
