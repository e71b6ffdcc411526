//! The headers and properties of a request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_filter::fuzz::request(bytes));
