//! Benchmark baseline: a proxy-wasm filter on the plain SDK that reads the request headers named in its
//! configuration, separated by commas.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

#[allow(missing_docs, reason = "the SDK's macro writes a public function")]
mod entry {
    proxy_wasm::main! {{
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Warn);
        proxy_wasm::set_root_context(|_| Box::<super::Root>::default());
    }}
}

#[derive(Default)]
struct Root {
    names: Rc<[String]>,
}

struct Stream {
    names: Rc<[String]>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        let names = self.get_plugin_configuration().unwrap_or_default();
        let names = String::from_utf8_lossy(&names).into_owned();
        self.names = names.split(',').map(str::to_owned).collect();
        true
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream {
            names: Rc::clone(&self.names),
        }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        for name in self.names.iter() {
            // The optimiser must not drop the call with its copy and checks.
            std::hint::black_box(self.get_http_request_header(name));
        }
        Action::Continue
    }
}
