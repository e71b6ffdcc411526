//! A plugin configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_filter::fuzz::configuration(bytes));
