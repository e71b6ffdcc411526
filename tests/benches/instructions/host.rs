//! A host of proxy-wasm with a clock, a request, shared data, and coordinators that lend what is asked for.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result};
use prost::Message as _;
use tollgate_proto::v1;
use wasmi::{Caller, Extern, ExternType, Linker, Memory, Module, Val};

use crate::LEASE;
use crate::request::{Request, SOURCE};

/// Export by which the host gets memory for what it hands over.
pub(crate) const ALLOCATE: &str = "proxy_on_memory_allocate";

/// Statuses of proxy-wasm.
const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;

/// Number of the buffer with the answer to a call.
const GRPC_RECEIVE_BUFFER: u32 = 5;

/// State of the host.
#[derive(Default)]
pub(crate) struct Host {
    /// The monotonic clock, in nanoseconds.
    pub(crate) now: u64,
    /// The plugin's configuration.
    pub(crate) configuration: Vec<u8>,
    /// The request at hand.
    pub(crate) request: Request,
    /// Calls of the host, and of the VM by the host within them, by name.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Answers to calls of the coordinators, with their tokens.
    pub(crate) answers: VecDeque<(u32, Vec<u8>)>,
    /// Message of the callback that is running.
    pub(crate) received: Vec<u8>,
    /// Lines that the module logged.
    pub(crate) log: Vec<String>,
    shared: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
    /// The last number that was given to a call, a stream or a metric.
    last_token: u32,
}

/// The module's arguments of a call, and its memory.
struct Arguments<'a, 'b> {
    caller: &'a mut Caller<'b, Host>,
    memory: Memory,
    values: Vec<u32>,
}

// === impl Arguments ===

impl Arguments<'_, '_> {
    /// The bytes whose address is argument `at`, and whose number the one behind it.
    fn bytes(&self, at: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.values[at + 1] as usize];
        let from = self.values[at] as usize;
        self.memory.read(&*self.caller, from, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes to the address that is argument `at`.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let to = self.values[at] as usize;
        Ok(self.memory.write(&mut *self.caller, to, bytes)?)
    }

    /// Hands bytes over in memory of the module's, whose address and length go to arguments `at` and
    /// `at + 1`.
    fn hand_over(&mut self, at: usize, bytes: &[u8]) -> Result<u32> {
        let allocate = self.caller.get_export(ALLOCATE);
        let allocate = allocate.and_then(Extern::into_func).context(ALLOCATE)?;
        self.caller.data_mut().count(ALLOCATE);
        let len = u32::try_from(bytes.len())?;
        let mut address = [Val::I32(0)];
        allocate.call(
            &mut *self.caller,
            &[Val::I32(len.cast_signed())],
            &mut address,
        )?;
        let address = address[0].i32().context("an address")?.cast_unsigned();
        self.memory
            .write(&mut *self.caller, address as usize, bytes)?;
        self.write(at, &address.to_le_bytes())?;
        self.write(at + 1, &len.to_le_bytes())?;
        Ok(OK)
    }

    /// Carries a call out, and returns its status.
    fn serve(&mut self, name: &str) -> Result<u32> {
        match name {
            "clock_time_get" => {
                let now = self.caller.data().now;
                self.write(2, &now.to_le_bytes())?;
            }
            "random_get" => {
                let bytes: Vec<u8> = (0..self.values[1]).map(|n| n as u8 ^ 0x5a).collect();
                self.write(0, &bytes)?;
            }
            "environ_sizes_get" => {
                self.write(0, &0_u32.to_le_bytes())?;
                self.write(1, &0_u32.to_le_bytes())?;
            }
            "proxy_log" => {
                let line = String::from_utf8_lossy(&self.bytes(1)?).into_owned();
                self.caller.data_mut().log.push(line);
            }
            "proxy_get_buffer_bytes" => {
                let host = self.caller.data();
                let bytes = match self.values[0] {
                    GRPC_RECEIVE_BUFFER => host.received.clone(),
                    _ => host.configuration.clone(),
                };
                return self.hand_over(3, &bytes);
            }
            "proxy_get_header_map_value" => {
                let name = self.bytes(1)?;
                let value = self.caller.data().request.header(&name);
                let Some(value) = value.map(str::to_owned) else {
                    return Ok(NOT_FOUND);
                };
                return self.hand_over(3, value.as_bytes());
            }
            "proxy_get_property" => return self.property(),
            "proxy_get_shared_data" => return self.shared_data(),
            "proxy_set_shared_data" => return self.set_shared_data(),
            "proxy_define_metric" => self.hand_token(3)?,
            "proxy_grpc_stream" => self.hand_token(8)?,
            "proxy_grpc_call" => {
                self.hand_token(11)?;
                let (method, message) = (self.bytes(4)?, self.bytes(8)?);
                self.caller.data_mut().answer(&method, &message)?;
            }
            _ => {}
        }
        Ok(OK)
    }

    fn property(&mut self) -> Result<u32> {
        match self.bytes(0)?.as_slice() {
            b"plugin_vm_id" => self.hand_over(2, b"bench"),
            b"source\0address" => self.hand_over(2, SOURCE),
            _ => Ok(NOT_FOUND),
        }
    }

    fn shared_data(&mut self) -> Result<u32> {
        let key = self.bytes(0)?;
        let Some((value, cas)) = self.caller.data().shared.get(&key).cloned() else {
            return Ok(NOT_FOUND);
        };
        self.write(4, &cas.to_le_bytes())?;
        self.hand_over(2, &value)
    }

    fn set_shared_data(&mut self) -> Result<u32> {
        let (key, value, cas) = (self.bytes(0)?, self.bytes(2)?, self.values[4]);
        let record = self.caller.data_mut().shared.entry(key).or_default();
        if cas != 0 && cas != record.1 {
            return Ok(CAS_MISMATCH);
        }
        *record = (value, record.1 + 1);
        Ok(OK)
    }

    fn hand_token(&mut self, at: usize) -> Result<()> {
        let host = self.caller.data_mut();
        host.last_token += 1;
        let token = host.last_token;
        self.write(at, &token.to_le_bytes())
    }
}

// === impl Host ===

impl Host {
    /// Counts a call.
    fn count(&mut self, name: &str) {
        match self.calls.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.calls.insert(name.to_owned(), 1),
        }
    }

    /// Answers the call of the last token: a refresh is lent what there is.
    fn answer(&mut self, method: &[u8], message: &[u8]) -> Result<()> {
        let answer = match method {
            b"Refresh" => lend(v1::RefreshRequest::decode(message)?).encode_to_vec(),
            _ => Vec::new(),
        };
        self.answers.push_back((self.last_token, answer));
        Ok(())
    }
}

// === free functions ===

/// Defines every import of `module`. A call that needs no answer succeeds and does nothing.
///
/// # Errors
/// When a module imports anything but functions.
pub(crate) fn define(linker: &mut Linker<Host>, module: &Module) -> Result<()> {
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty() else {
            anyhow::bail!("{} is no function", import.name());
        };
        let name = import.name().to_owned();
        let serve = move |mut caller: Caller<'_, Host>, values: &[Val], results: &mut [Val]| {
            let served = serve(&mut caller, &name, values);
            let status = served.map_err(|error| wasmi::Error::new(format!("{name}: {error:#}")))?;
            if let Some(result) = results.first_mut() {
                *result = Val::I32(status.cast_signed());
            }
            Ok(())
        };
        linker.func_new(import.module(), import.name(), ty.clone(), serve)?;
    }
    Ok(())
}

fn serve(caller: &mut Caller<'_, Host>, name: &str, values: &[Val]) -> Result<u32> {
    caller.data_mut().count(name);
    let memory = caller.get_export("memory");
    let memory = memory.and_then(Extern::into_memory).context("memory")?;
    // Of the long arguments, none is looked at.
    let values = values.iter().map(|value| value.i32().unwrap_or_default());
    let values = values.map(i32::cast_unsigned).collect();
    let mut arguments = Arguments {
        caller,
        memory,
        values,
    };
    arguments.serve(name)
}

/// Answers a refresh with leases of [`LEASE`] tokens a second.
fn lend(request: v1::RefreshRequest) -> v1::RefreshResponse {
    let unit = |asked: v1::UnitRequest| v1::UnitResponse {
        unit: asked.unit,
        sequence: asked.sequence,
        lease: Some(v1::Lease {
            capacity: LEASE,
            duration_ms: 60_000,
            burst: LEASE,
            ..v1::Lease::default()
        }),
        refresh_interval_ms: 5_000,
        safe_capacity: Some(LEASE),
        capacity: LEASE,
        ..v1::UnitResponse::default()
    };
    let scope = |asked: v1::ScopeRequest| v1::ScopeResponse {
        canonical_scope: asked.scope.clone(),
        scope: asked.scope,
        limited: asked.units.iter().map(|unit| unit.unit).collect(),
        units: asked.units.into_iter().map(unit).collect(),
        ..v1::ScopeResponse::default()
    };
    v1::RefreshResponse {
        epoch: 1,
        scopes: request.scopes.into_iter().map(scope).collect(),
    }
}
