//! A configuration as the streams of one worker use it.

use core::cell::{Cell, RefCell};
use core::fmt;

use tollgate_engine::{Charge, Decision, InUse};

use crate::bound_stream::BoundStream;
use crate::config::Config;
use crate::host::{Host, HostError};
use crate::route::Routes;
use crate::worker::{BoundRoot, BoundRule, Worker};

/// The most charges whose memory stays for streams to come.
const SPARE_MAX: usize = 64;

/// A configuration that a worker has taken over.
pub struct Binding {
    root: BoundRoot,
    /// Exceptions of routes, if they may have any.
    routes: Option<RefCell<Routes<BoundRule>>>,
    /// Charge of the stream that ended last, if none has begun since.
    ended: Cell<Option<Box<Charge>>>,
    /// Memory of the charges of others that have ended.
    #[allow(clippy::vec_box, reason = "a stream takes the memory over")]
    spare: RefCell<Vec<Box<Charge>>>,
}

// === impl Binding ===

impl Binding {
    /// Makes `worker` take `config` over, beside others that are in use, for as long as its `user` exists. `unknown`
    /// are the fields of it that nobody knows, of which one worker of the process warns.
    ///
    /// # Errors
    /// If the host knows no metrics.
    pub fn new<H: Host + Clone>(
        worker: &mut Worker<H>,
        config: &Config,
        unknown: &[String],
        user: &InUse,
    ) -> Result<Self, HostError> {
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            worker.warn_once(format!("tollgate: ignored unknown fields: {unknown}"));
        }
        let root = worker.configure(config, user)?;
        let names = config.engine.rules.iter().map(|rule| rule.name.clone());
        let named = names.zip(root.plain.rules.iter().cloned()).collect();
        let routes = config.per_route.then(|| RefCell::new(Routes::new(named)));
        Ok(Self {
            root,
            routes,
            ended: Cell::default(),
            spare: RefCell::default(),
        })
    }

    /// Returns a new stream by the number that the host has for it. If its request is the same as that
    /// of another stream, that one has ended last, and no other has begun since.
    #[inline]
    pub fn begin(&self, number: u32) -> BoundStream {
        let charge = self.ended.take();
        BoundStream::new(number, charge.unwrap_or_else(|| self.empty_charge()))
    }

    /// Decides on the request at hand, which is `stream`.
    #[inline]
    pub fn admit<H: Host + Clone>(
        &self,
        worker: &mut Worker<H>,
        stream: &mut BoundStream,
    ) -> Decision {
        if self.root.marks {
            worker.remove_foreign_mark();
        }
        match &self.routes {
            None => worker.admit(&self.root, &self.root.plain, stream),
            Some(routes) => self.admit_by_route(worker, routes, stream),
        }
    }

    /// Notes that `stream` has ended: its request may come again at once, as the next stream.
    #[inline]
    pub fn leave(&self, stream: &mut BoundStream) {
        if let Some(earlier) = self.ended.replace(stream.charge.take()) {
            self.spare(earlier);
        }
    }

    #[inline(never)]
    fn empty_charge(&self) -> Box<Charge> {
        let mut spare = self.spare.try_borrow_mut().ok();
        let charge = spare.as_mut().and_then(|spare| spare.pop());
        charge.unwrap_or_default()
    }

    #[inline(never)]
    fn spare(&self, mut charge: Box<Charge>) {
        if let Ok(mut spare) = self.spare.try_borrow_mut()
            && spare.len() < SPARE_MAX
        {
            charge.clear();
            spare.push(charge);
        }
    }

    fn admit_by_route<H: Host + Clone>(
        &self,
        worker: &mut Worker<H>,
        routes: &RefCell<Routes<BoundRule>>,
        stream: &mut BoundStream,
    ) -> Decision {
        // Streams are never entered while another one of the worker runs.
        let Ok(mut routes) = routes.try_borrow_mut() else {
            return worker.admit(&self.root, &self.root.plain, stream);
        };
        let host = worker.host.clone();
        let special = routes.at_hand(&host, |error| worker.ignore_route_field(&error));
        match special {
            Ok(special) if special.disabled => {
                stream.hand_on();
                Decision::Admit
            }
            Ok(special) => worker.admit(&self.root, special, stream),
            Err(error) => worker.fail(&self.root, &error),
        }
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut binding = f.debug_struct("Binding");
        binding.field("root", &self.root).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
