//! Records in shared data.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_filter::fuzz::records(bytes));
