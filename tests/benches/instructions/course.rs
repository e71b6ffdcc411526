//! Requests through a VM, as Envoy hands them to a filter, in virtual time.

use anyhow::{Context, Result, ensure};

use crate::TENANTS;
use crate::counted::CountedModule;
use crate::request::Request;
use crate::vm::{Cost, ROOT, Vm};

/// Callbacks of a request without a body whose response has one, in their order. Envoy leaves out those that
/// a module does not export.
pub(crate) const CALLBACKS: [&str; 7] = [
    "proxy_on_context_create",
    HEADERS,
    "proxy_on_response_headers",
    "proxy_on_response_body",
    "proxy_on_done",
    "proxy_on_log",
    "proxy_on_delete",
];
const HEADERS: &str = "proxy_on_request_headers";
/// Calls of the host that only read the request.
const OF_THE_REQUEST: [&str; 2] = ["proxy_get_header_map_value", "proxy_get_property"];

/// Time between two requests: of 100 tenants each has 100 requests a second.
const INTERVAL_NS: u64 = 100_000;
/// Requests between two ticks, which come every 20 ms.
const REQUESTS_PER_TICK: u64 = 200;
/// Requests before the measurement: two seconds, in which all tenants get leases and the demand is known.
const WARM_UP: u64 = 20_000;

/// A VM that gets requests.
struct Course {
    vm: Vm,
    requests: u64,
    housekeeping: Cost,
}

/// Price of a filter, summed over all requests of its kind.
#[derive(Default)]
pub(crate) struct Profile {
    /// Price of each of [`CALLBACKS`] for requests that asked the host for [`OF_THE_REQUEST`] and nothing else;
    /// none where the module lacks the callback.
    pub(crate) callbacks: [Option<Cost>; CALLBACKS.len()],
    /// The number of these requests.
    pub(crate) plain: u64,
    /// Price of all other requests.
    pub(crate) drawing: Cost,
    /// The number of all requests.
    pub(crate) requests: u64,
    /// Price of ticks and of answers of the coordinators.
    pub(crate) housekeeping: Cost,
}

/// Measures a module with so many requests.
///
/// # Errors
/// When a callback fails, or a request is refused.
pub(crate) fn measure(
    module: &CountedModule,
    configuration: &str,
    requests: u64,
) -> Result<Profile> {
    let mut course = Course {
        vm: Vm::new(module, configuration)?,
        requests: 0,
        housekeeping: Cost::default(),
    };
    for _ in 0..WARM_UP {
        course.request()?;
    }
    course.housekeeping = Cost::default();
    let mut profile = Profile::default();
    for _ in 0..requests {
        let costs = course.request()?;
        profile.add(&costs);
    }
    profile.housekeeping = course.housekeeping;
    Ok(profile)
}

// === impl Course ===

impl Course {
    /// Plays one request, and the tick if one is due.
    fn request(&mut self) -> Result<[Option<Cost>; CALLBACKS.len()]> {
        self.requests += 1;
        let stream = ROOT + u32::try_from(self.requests)?;
        let host = self.vm.host();
        host.now += INTERVAL_NS;
        host.request = Request::of(&format!("tenant-{}", self.requests % TENANTS));
        let mut costs = [const { None }; CALLBACKS.len()];
        for (callback, cost) in CALLBACKS.into_iter().zip(&mut costs) {
            let arguments = match callback {
                "proxy_on_context_create" => [stream, ROOT, 0],
                // The number of headers, and whether the stream ends; without a body a length is that.
                HEADERS => [stream, 8, 1],
                _ => [stream, 8, 0],
            };
            let called = self.vm.call(callback, &arguments)?;
            if let Some((action, of)) = called {
                let is_admitted = callback != HEADERS || action == 0 || self.requests <= WARM_UP;
                ensure!(is_admitted, "a request waits or is refused");
                *cost = Some(of);
            }
        }
        if self.requests.is_multiple_of(REQUESTS_PER_TICK) {
            self.tick()?;
        }
        Ok(costs)
    }

    fn tick(&mut self) -> Result<()> {
        if let Some((_, cost)) = self.vm.call("proxy_on_tick", &[ROOT])? {
            self.housekeeping += &cost;
        }
        while let Some((token, answer)) = self.vm.host().answers.pop_front() {
            let len = u32::try_from(answer.len())?;
            self.vm.host().received = answer;
            let received = self.vm.call("proxy_on_grpc_receive", &[ROOT, token, len])?;
            self.housekeeping += &received.context("proxy_on_grpc_receive")?.1;
        }
        Ok(())
    }
}

// === impl Profile ===

impl Profile {
    fn add(&mut self, costs: &[Option<Cost>; CALLBACKS.len()]) {
        self.requests += 1;
        let mut calls = costs
            .iter()
            .flatten()
            .flat_map(|cost| cost.host_calls.keys());
        let is_plain = calls.all(|name| OF_THE_REQUEST.contains(&name.as_str()));
        self.plain += u64::from(is_plain);
        for (sum, cost) in self.callbacks.iter_mut().zip(costs) {
            let Some(cost) = cost else { continue };
            if is_plain {
                *sum.get_or_insert_default() += cost
            } else {
                self.drawing += cost
            }
        }
    }

    /// The price of all requests that only read the request.
    pub(crate) fn plain_cost(&self) -> Cost {
        let mut sum = Cost::default();
        for cost in self.callbacks.iter().flatten() {
            sum += cost;
        }
        sum
    }

    /// Operations that draws, ticks and answers add to each request in the mean.
    pub(crate) fn spread(&self) -> f64 {
        let drawing = self.requests - self.plain;
        let plain = self.plain_cost().operations() as f64 / self.plain as f64;
        let more = self.drawing.operations() as f64 - plain * drawing as f64;
        (more + self.housekeeping.operations() as f64) / self.requests as f64
    }
}
