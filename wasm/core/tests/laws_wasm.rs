//! The laws as wasm-bindgen tests, in a JavaScript VM without WASI.

#![cfg(all(target_family = "wasm", target_os = "unknown"))]

use wasm_bindgen_test::wasm_bindgen_test;

mod laws;

laws::each_law!(wasm_bindgen_test, 60);
