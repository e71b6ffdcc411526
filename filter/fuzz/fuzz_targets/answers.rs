//! Answers of a coordinator.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_filter::fuzz::answers(bytes));
