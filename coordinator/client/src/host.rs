//! Tokio as an engine sees it: a clock, memory of this process, and calls for the driver to make.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant as TokioInstant;
use tollgate_core::lease::ClientRun;
use tollgate_core::message::Release;
use tollgate_core::units::Instant;
use tollgate_engine::{Call, Cas, Host, HostError, Level, OwnSlots, SharedMemory, Written};

/// Host of the one worker of this process.
#[derive(Debug)]
pub(crate) struct ClientHost {
    start: TokioInstant,
    slots: OwnSlots,
    memory: RefCell<SharedMemory>,
    orders: RefCell<Vec<Order>>,
    last_token: Cell<u32>,
}

/// Something that the driver does for the engine.
#[derive(Debug)]
pub(crate) enum Order {
    /// Makes a call, whose answer comes back with `token`.
    Call {
        token: u32,
        call: Call,
        timeout: Duration,
    },
    /// Opens the stream of nudges.
    Watch { token: u32, client: ClientRun },
    /// Closes it.
    Unwatch { token: u32 },
}

// === impl ClientHost ===

impl ClientHost {
    /// Returns a host whose clock starts now.
    pub(crate) fn new() -> Self {
        Self {
            start: TokioInstant::now(),
            slots: OwnSlots::default(),
            memory: RefCell::default(),
            orders: RefCell::default(),
            last_token: Cell::new(0),
        }
    }

    /// Returns what is to be done since the last time.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        self.orders.take()
    }

    fn order(&self, order: impl FnOnce(u32) -> Order) -> u32 {
        let token = self.last_token.get().wrapping_add(1);
        self.last_token.set(token);
        self.orders.borrow_mut().push(order(token));
        token
    }
}

impl Host for ClientHost {
    fn now(&self) -> Instant {
        Instant::ZERO.saturating_add(self.start.elapsed())
    }

    fn log(&self, level: Level, message: &str) {
        match level {
            Level::Debug => tracing::debug!("{message}"),
            Level::Warn => tracing::warn!("{message}"),
            Level::Error => tracing::error!("{message}"),
        }
    }

    fn memory_bytes(&self) -> u64 {
        // Only a VM's memory is its engine's alone.
        0
    }

    fn own_slots(&self) -> Option<&OwnSlots> {
        Some(&self.slots)
    }

    fn shared_get(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, HostError> {
        Ok(self.memory.borrow().get(key))
    }

    fn shared_set(&self, key: &str, value: &[u8], cas: Cas) -> Result<Written, HostError> {
        Ok(self.memory.borrow_mut().set(key, value, cas))
    }

    fn call(&self, _: &str, call: &Call, timeout: Duration) -> Result<u32, HostError> {
        let call = call.clone();
        Ok(self.order(|token| Order::Call {
            token,
            call,
            timeout,
        }))
    }

    fn lacks_cluster(&self, _: &str, _: &Release, _: Duration) -> bool {
        false
    }

    fn watch(&self, _: &str, client: &ClientRun) -> Result<Option<u32>, HostError> {
        let client = client.clone();
        Ok(Some(self.order(|token| Order::Watch { token, client })))
    }

    fn unwatch(&self, token: u32) {
        self.orders.borrow_mut().push(Order::Unwatch { token });
    }
}
