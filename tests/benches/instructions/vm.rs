//! A VM with one module, and the price of each callback in it.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::{Context, Result, ensure};
use wasmi::{Engine, Global, Instance, Linker, Module, Store, Val};

use crate::counted::{CountedModule, counter_name};
use crate::host::{self, ALLOCATE, Host};

/// The root context, which has the configuration.
pub(crate) const ROOT: u32 = 1;

/// A VM with a configured filter.
pub(crate) struct Vm {
    store: Store<Host>,
    instance: Instance,
    counters: Vec<Global>,
}

/// Price of one callback or more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// Operations by function, in the order of the module's counters.
    pub(crate) by_function: Vec<u64>,
    /// Calls of the host, by name.
    pub(crate) host_calls: BTreeMap<String, u64>,
    /// Entries into the VM from outside: callbacks, and requests for memory within calls of the host.
    pub(crate) entries: u64,
}

// === impl Vm ===

impl Vm {
    /// Loads a module and configures it.
    ///
    /// # Errors
    /// When the module is not one for proxy-wasm, or refuses the configuration.
    pub(crate) fn new(module: &CountedModule, configuration: &str) -> Result<Self> {
        let engine = Engine::default();
        let compiled = Module::new(&engine, &module.wasm)?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker, &compiled)?;
        let mut state = Host::default();
        state.configuration = configuration.as_bytes().to_vec();
        state.now = 1_000_000_000;
        let mut store = Store::new(&engine, state);
        let instance = linker.instantiate_and_start(&mut store, &compiled)?;
        let counters = (0..module.functions.len()).map(|function| {
            let counter = instance.get_global(&store, &counter_name(function));
            counter.context("a counter")
        });
        let counters = counters.collect::<Result<_>>()?;
        let mut vm = Self {
            store,
            instance,
            counters,
        };
        vm.call("_initialize", &[])?;
        vm.call("proxy_on_context_create", &[ROOT, 0])?;
        vm.call("proxy_on_vm_start", &[ROOT, 0])?;
        let len = u32::try_from(configuration.len())?;
        let (taken, _) = vm
            .call("proxy_on_configure", &[ROOT, len])?
            .context("configure")?;
        ensure!(
            taken != 0,
            "the configuration is refused: {:?}",
            vm.host().log
        );
        Ok(vm)
    }

    /// The host's state.
    pub(crate) fn host(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// Calls an export, if the module has it, with as many of `arguments` as it takes: its result, or zero,
    /// and its price.
    ///
    /// # Errors
    /// When it traps.
    pub(crate) fn call(&mut self, export: &str, arguments: &[u32]) -> Result<Option<(u32, Cost)>> {
        let Some(function) = self.instance.get_func(&self.store, export) else {
            return Ok(None);
        };
        let before = self.counts()?;
        self.store.data_mut().calls.clear();
        let ty = function.ty(&self.store);
        let arguments = arguments.iter().take(ty.params().len());
        let arguments = arguments.map(|value| Val::I32(value.cast_signed()));
        let arguments: Vec<Val> = arguments.collect();
        let mut results = vec![Val::I32(0); ty.results().len()];
        function
            .call(&mut self.store, &arguments, &mut results)
            .with_context(|| format!("{export}: {:?}", self.store.data().log))?;
        let after = self.counts()?;
        let by_function = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        let by_function = by_function.collect();
        let mut host_calls = std::mem::take(&mut self.store.data_mut().calls);
        let entries = 1 + host_calls.remove(ALLOCATE).unwrap_or_default();
        let cost = Cost {
            by_function,
            host_calls,
            entries,
        };
        let result = results.first().and_then(Val::i32).unwrap_or_default();
        Ok(Some((result.cast_unsigned(), cost)))
    }

    fn counts(&self) -> Result<Vec<u64>> {
        let counts = self.counters.iter().map(|counter| counter.get(&self.store));
        let counts = counts.map(|count| count.i64().map(i64::cast_unsigned));
        counts
            .collect::<Option<_>>()
            .context("counters are numbers")
    }
}

// === impl Cost ===

impl Cost {
    /// All operations.
    pub(crate) fn operations(&self) -> u64 {
        self.by_function.iter().sum()
    }

    /// The calls of the host.
    pub(crate) fn calls(&self) -> u64 {
        self.host_calls.values().sum()
    }
}

impl AddAssign<&Self> for Cost {
    fn add_assign(&mut self, other: &Self) {
        self.by_function.resize(other.by_function.len(), 0);
        for (sum, more) in self.by_function.iter_mut().zip(&other.by_function) {
            *sum += more;
        }
        for (name, more) in &other.host_calls {
            *self.host_calls.entry(name.clone()).or_default() += more;
        }
        self.entries += other.entries;
    }
}
