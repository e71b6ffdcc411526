//! The laws under libtest, natively and in WASI.

#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]

mod laws;

laws::each_law!(test, 1000);
