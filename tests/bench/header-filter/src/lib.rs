//! Benchmark baseline: a proxy-wasm filter that reads one request header, on the plain SDK.

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

#[allow(missing_docs, reason = "the SDK's macro writes a public function")]
mod entry {
    proxy_wasm::main! {{
        proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Warn);
        proxy_wasm::set_root_context(|_| Box::new(super::Root));
    }}
}

struct Root;

struct Stream;

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        // Kept from the optimiser, or the call with its copy and its checks could be dropped.
        std::hint::black_box(self.get_http_request_header("x-tenant"));
        Action::Continue
    }
}
