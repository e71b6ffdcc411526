//! A configuration as the streams of one worker use it.

use core::cell::RefCell;

use tollgate_engine::Decision;

use crate::config::Config;
use crate::host::{Host, HostError};
use crate::route::Routes;
use crate::worker::{BoundRoot, BoundRule, Worker};

/// A configuration that a worker has taken over.
#[derive(Debug)]
pub struct Binding {
    root: BoundRoot,
    /// Exceptions of routes, if they may have any.
    routes: Option<RefCell<Routes<BoundRule>>>,
}

// === impl Binding ===

impl Binding {
    /// Makes `worker` take `config` over, beside others that are in use. `unknown` are the fields of it
    /// that nobody knows, of which one worker of the process warns.
    ///
    /// # Errors
    /// If the host knows no metrics.
    pub fn new<H: Host + Clone>(
        worker: &mut Worker<H>,
        config: &Config,
        unknown: &[String],
    ) -> Result<Self, HostError> {
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            worker.warn_once(format!("tollgate: ignored unknown fields: {unknown}"));
        }
        let root = worker.configure(config)?;
        let names = config.engine.rules.iter().map(|rule| rule.name.clone());
        let named = names.zip(root.rules.iter().cloned()).collect();
        let routes = config.per_route.then(|| RefCell::new(Routes::new(named)));
        Ok(Self { root, routes })
    }

    /// Decides on the request at hand, which is the stream `stream`.
    #[inline]
    pub fn admit<H: Host + Clone>(&self, worker: &mut Worker<H>, stream: u32) -> Decision {
        match &self.routes {
            None => worker.admit(&self.root, stream),
            Some(routes) => self.admit_by_route(worker, routes, stream),
        }
    }

    fn admit_by_route<H: Host + Clone>(
        &self,
        worker: &mut Worker<H>,
        routes: &RefCell<Routes<BoundRule>>,
        stream: u32,
    ) -> Decision {
        // Streams are never entered while another one of the worker runs.
        let Ok(mut routes) = routes.try_borrow_mut() else {
            return worker.admit(&self.root, stream);
        };
        let host = worker.host.clone();
        match routes.at_hand(&host) {
            Ok(special) if special.disabled => Decision::Admit,
            Ok(special) => worker.admit_at(&self.root, &special.rules, stream, special.cost),
            Err(error) => worker.fail(&self.root, &error),
        }
    }
}
