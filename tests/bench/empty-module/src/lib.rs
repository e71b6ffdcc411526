//! Benchmark baseline: a dynamic module without any work, so that what it costs is Envoy's own.

#![allow(unsafe_code, reason = "Envoy calls hooks by their names")]

use core::ffi::{CStr, c_char, c_void};

/// The version of the interface.
const ABI_VERSION: &CStr = c"v0.2.0";

/// Envoy continues with what a hook was told of.
const CONTINUE: u32 = 0;

/// A configuration, and a stream: Envoy wants a pointer that is not null, and never reads from it.
static NOTHING: u8 = 0;

type Ptr = *const c_void;

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    ABI_VERSION.as_ptr()
}

macro_rules! makes {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Ptr {
            (&raw const NOTHING).cast()
        }
    )*};
}

macro_rules! continues {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            CONTINUE
        }
    )*};
}

macro_rules! ignored {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}

// Their arguments stay in registers that nobody looks at.
makes! {
    envoy_dynamic_module_on_http_filter_config_new;
    envoy_dynamic_module_on_http_filter_new;
}

continues! {
    envoy_dynamic_module_on_http_filter_request_headers;
    envoy_dynamic_module_on_http_filter_request_body;
    envoy_dynamic_module_on_http_filter_request_trailers;
    envoy_dynamic_module_on_http_filter_response_headers;
    envoy_dynamic_module_on_http_filter_response_body;
    envoy_dynamic_module_on_http_filter_response_trailers;
}

ignored! {
    envoy_dynamic_module_on_http_filter_config_destroy;
    envoy_dynamic_module_on_http_filter_destroy;
    envoy_dynamic_module_on_http_filter_stream_complete;
    envoy_dynamic_module_on_http_filter_scheduled;
    envoy_dynamic_module_on_http_filter_http_callout_done;
    envoy_dynamic_module_on_http_filter_http_stream_headers;
    envoy_dynamic_module_on_http_filter_http_stream_data;
    envoy_dynamic_module_on_http_filter_http_stream_trailers;
    envoy_dynamic_module_on_http_filter_http_stream_complete;
    envoy_dynamic_module_on_http_filter_http_stream_reset;
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark;
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark;
}
