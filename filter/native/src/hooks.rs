//! Hooks that Envoy calls. Each turns pointers into references, and lets no panic out.

#![allow(
    unsafe_code,
    reason = "C's interface; apart from it and Envoy's calls this crate is safe"
)]

use core::ffi::{c_char, c_void};
use core::ptr::null;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use tollgate_filter::Level;

use crate::calls::{StreamEvent, StreamId};
use crate::cluster_calls;
use crate::configuration::Configuration;
use crate::envoy::{ABI_VERSION, Buffer, ConfigPtr, Header, StreamPtr, log};
use crate::stream::{Step, Stream};
use crate::worker::Bound;

/// Statuses of the request's headers.
const CONTINUE: u32 = 0;
const STOP: u32 = 1;
const STOP_ALL_AND_WATERMARK: u32 = 4;

/// Runs a hook; after a panic, which is logged, it has the result `otherwise`.
fn guard<R>(otherwise: R, hook: impl FnOnce() -> R) -> R {
    // A panic leaves only things half done that are behind a lock, poisoned then, or of one stream.
    catch_unwind(AssertUnwindSafe(hook)).unwrap_or_else(|_| {
        log(
            Level::Error,
            "tollgate: a hook of the dynamic module panicked",
        );
        otherwise
    })
}

/// Does what a stream wants done.
///
/// # Safety
/// The stream is in one of its hooks, and no reference into the module's part of it is alive: Envoy may run
/// other hooks of the stream meanwhile, and destroy it.
unsafe fn carry_out(stream: StreamPtr, step: Step) -> u32 {
    match step {
        Step::Continue => CONTINUE,
        Step::Wait => STOP_ALL_AND_WATERMARK,
        Step::Resume => {
            // SAFETY: as this function demands; only a stream that waits, stopped, resumes.
            unsafe { stream.resume() };
            CONTINUE
        }
        Step::Reply(reply) => {
            let fields = reply.headers.iter();
            let fields: Vec<_> = fields.map(|(key, value)| (&key[..], &value[..])).collect();
            // SAFETY: as this function demands.
            unsafe { stream.reply(reply.status, &fields, &reply.body) };
            STOP
        }
    }
}

/// The stream that Envoy has for `envoy`, with the module's own.
///
/// # Safety
/// The pointers are those of a hook that is running.
unsafe fn with_stream<R>(
    envoy: *mut c_void,
    own: *const c_void,
    run: impl FnOnce(StreamPtr, &Stream) -> R,
) -> Option<R> {
    // SAFETY: as this function demands.
    let envoy = unsafe { StreamPtr::new(envoy) }?;
    // SAFETY: `own` was made by `http_filter_new`, and is not destroyed in this call of `run`.
    let stream = unsafe { own.cast::<Stream>().as_ref() }?;
    Some(run(envoy, stream))
}

/// # Safety
/// `own` is what `config_new` returned, and not destroyed.
unsafe fn configuration<'a>(own: *const c_void) -> Option<&'a Configuration> {
    // SAFETY: as this function demands.
    unsafe { own.cast::<Configuration>().as_ref() }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    ABI_VERSION.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: *mut c_void,
    _name: Buffer,
    config: Buffer,
) -> *const c_void {
    guard(null(), || {
        // SAFETY: this is the pointer of this hook, and the bytes are Envoy's until it ends.
        let (envoy, json) = unsafe { (ConfigPtr::new(envoy), config.bytes()) };
        let new = envoy.and_then(|envoy| Configuration::load(envoy, json));
        new.map_or(null(), |new| Box::into_raw(Box::new(new)).cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(own: *const c_void) {
    guard((), || {
        if !own.is_null() {
            // SAFETY: made by `config_new`, and destroyed once.
            let configuration = unsafe { Box::from_raw(own.cast::<Configuration>().cast_mut()) };
            configuration.detach();
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(
    own: *const c_void,
    _envoy: *mut c_void,
) -> *const c_void {
    guard(null(), || {
        // SAFETY: Envoy destroys a configuration after its streams.
        let configuration = unsafe { configuration(own) };
        configuration.map_or(null(), |own| {
            Box::into_raw(Box::new(new_stream(own, Bound::of))).cast()
        })
    })
}

/// Returns the module's part of a new stream. After a panic of `bind`, which may make an engine, the stream has
/// none, and `host_failure` decides; without its part Envoy would let it go on.
#[inline]
fn new_stream(
    configuration: &Configuration,
    bind: impl FnOnce(&Configuration) -> Option<Rc<Bound>>,
) -> Stream {
    Stream::new(configuration, guard(None, || bind(configuration)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(own: *const c_void) {
    guard((), || {
        if !own.is_null() {
            // SAFETY: made by `http_filter_new`, and destroyed once.
            drop(unsafe { Box::from_raw(own.cast::<Stream>().cast_mut()) });
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    envoy: *mut c_void,
    own: *const c_void,
    _end: bool,
) -> u32 {
    // SAFETY: these are the pointers of this hook.
    let step = guard(None, || unsafe {
        with_stream(envoy, own, |envoy, stream| {
            (envoy, stream.handle_request(envoy))
        })
    });
    let after_panic = || {
        // SAFETY: as above.
        guard(None, || unsafe {
            with_stream(envoy, own, |envoy, stream| {
                (envoy, stream.step_after_panic())
            })
        })
    };
    match step.or_else(after_panic) {
        // SAFETY: the hook is running.
        Some((envoy, step)) => unsafe { carry_out(envoy, step) },
        None => CONTINUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    envoy: *mut c_void,
    own: *const c_void,
    _event: u64,
) {
    // SAFETY: these are the pointers of this hook.
    let step = guard(None, || unsafe {
        with_stream(envoy, own, |envoy, stream| {
            (envoy, stream.handle_wake(envoy))
        })
    });
    if let Some((envoy, step)) = step {
        // SAFETY: the hook is running.
        unsafe { carry_out(envoy, step) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    envoy: *mut c_void,
    own: *const c_void,
    _end: bool,
) -> u32 {
    // SAFETY: these are the pointers of this hook.
    guard((), || unsafe {
        with_stream(envoy, own, |envoy, stream| stream.count_body(envoy, 0));
    });
    CONTINUE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    envoy: *mut c_void,
    own: *const c_void,
    _end: bool,
) -> u32 {
    // SAFETY: these are the pointers of this hook.
    guard((), || unsafe {
        with_stream(envoy, own, |envoy, stream| stream.count_body(envoy, 1));
    });
    CONTINUE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    envoy: *mut c_void,
    own: *const c_void,
) {
    // SAFETY: these are the pointers of this hook.
    guard((), || unsafe {
        with_stream(envoy, own, |envoy, stream| stream.handle_end(envoy));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    envoy: *mut c_void,
    own: *const c_void,
    _event: u64,
) {
    guard((), || {
        // SAFETY: these are the pointers of this hook.
        let (envoy, own) = unsafe { (ConfigPtr::new(envoy), configuration(own)) };
        if let (Some(envoy), Some(own)) = (envoy, own) {
            cluster_calls::start(&own.process, own.settings.id, envoy);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_headers(
    _envoy: *mut c_void,
    own: *const c_void,
    id: u64,
    headers: *const Header,
    count: usize,
    _end: bool,
) {
    // SAFETY: these are the pointers of this hook.
    guard((), || unsafe {
        hand_on(own, id, StreamEvent::Headers(&fields(headers, count)));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_data(
    _envoy: *mut c_void,
    own: *const c_void,
    id: u64,
    data: *const Buffer,
    count: usize,
    _end: bool,
) {
    guard((), || {
        for index in 0..count {
            // SAFETY: Envoy hands over `count` buffers, which are valid until the hook ends.
            unsafe { hand_on(own, id, StreamEvent::Data((*data.add(index)).bytes())) };
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_trailers(
    _envoy: *mut c_void,
    own: *const c_void,
    id: u64,
    trailers: *const Header,
    count: usize,
) {
    // SAFETY: these are the pointers of this hook.
    guard((), || unsafe {
        hand_on(own, id, StreamEvent::Headers(&fields(trailers, count)));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_complete(
    _envoy: *mut c_void,
    own: *const c_void,
    id: u64,
) {
    // SAFETY: this is the pointer of this hook.
    guard((), || unsafe { hand_on(own, id, StreamEvent::End) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_stream_reset(
    _envoy: *mut c_void,
    own: *const c_void,
    id: u64,
    _reason: u32,
) {
    // SAFETY: this is the pointer of this hook.
    guard((), || unsafe { hand_on(own, id, StreamEvent::Reset) });
}

/// # Safety
/// `own` is the configuration of a hook that is running.
unsafe fn hand_on(own: *const c_void, id: u64, event: StreamEvent<'_>) {
    // SAFETY: as this function demands.
    if let Some(own) = unsafe { configuration(own) } {
        let id = StreamId::new(own.settings.id, id);
        cluster_calls::handle_event(&own.process, id, &event);
    }
}

/// The names and values of header fields.
///
/// # Safety
/// There are `count` of them, valid until the hook ends.
unsafe fn fields<'a>(headers: *const Header, count: usize) -> Vec<(&'a [u8], &'a [u8])> {
    let field = |index| {
        // SAFETY: as this function demands.
        let header = unsafe { *headers.add(index) };
        // SAFETY: as this function demands.
        unsafe { (header.key.bytes(), header.value.bytes()) }
    };
    (0..count).map(field).collect()
}

/// Hooks that Envoy demands and this filter has no use for.
mod unused {
    use super::*;

    macro_rules! continues {
        ($($name:ident($($arg:ty),*);)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $arg),*) -> u32 {
                CONTINUE
            }
        )*};
    }

    macro_rules! ignored {
        ($($name:ident($($arg:ty),*);)*) => {$(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $arg),*) {}
        )*};
    }

    type Ptr = *const c_void;

    continues! {
        envoy_dynamic_module_on_http_filter_request_trailers(Ptr, Ptr);
        envoy_dynamic_module_on_http_filter_response_headers(Ptr, Ptr, bool);
        envoy_dynamic_module_on_http_filter_response_trailers(Ptr, Ptr);
    }

    ignored! {
        envoy_dynamic_module_on_http_filter_http_callout_done(Ptr, Ptr, u64, u32, Ptr, usize, Ptr, usize);
        envoy_dynamic_module_on_http_filter_http_stream_headers(Ptr, Ptr, u64, Ptr, usize, bool);
        envoy_dynamic_module_on_http_filter_http_stream_data(Ptr, Ptr, u64, Ptr, usize, bool);
        envoy_dynamic_module_on_http_filter_http_stream_trailers(Ptr, Ptr, u64, Ptr, usize);
        envoy_dynamic_module_on_http_filter_http_stream_complete(Ptr, Ptr, u64);
        envoy_dynamic_module_on_http_filter_http_stream_reset(Ptr, Ptr, u64, u32);
        envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(Ptr, Ptr);
        envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(Ptr, Ptr);
    }
}

#[cfg(test)]
mod tests;
