//! Messages on the stream of nudges.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_filter::fuzz::nudges(bytes));
