//! Envoy's C interface for dynamic modules: what the module calls. What Envoy calls is in `hooks`.
//!
//! The declarations follow `source/extensions/dynamic_modules/abi/abi.h` of Envoy 1.40: strings are a
//! pointer and a length by value, enumerations are C's. Envoy guarantees for every hook that its pointers
//! are valid while it runs; what a hook hands on is copied out of Envoy, but for the pointers to the
//! stream and to the configuration themselves, whose rules are at [`StreamPtr`] and [`ConfigPtr`].

#![allow(
    unsafe_code,
    reason = "C's interface; apart from it and the hooks this crate is safe"
)]

use core::ffi::{c_char, c_void};
use core::marker::PhantomData;
use core::ptr::{NonNull, null, null_mut};

use tollgate_filter::{
    Kind, Level, MARK, MARK_HEADER, MetadataKind, Notes, RESPONSE_DETAILS, joined, state_name,
};

/// The version of the interface that this module is built against.
pub(crate) const ABI_VERSION: &core::ffi::CStr = c"v0.2.0";

/// A stream of Envoy's, in a hook of it.
///
/// The pointer is valid until the stream's filter is destroyed. It cannot leave its thread, and is kept
/// only while a hook of the stream runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPtr(NonNull<c_void>, PhantomData<*const ()>);

/// A configuration of the filter in Envoy.
///
/// The pointer is valid until `config_destroy` returns, which first makes the process forget it. Streams
/// are opened and histograms filled on the main thread only, in a hook; counters and gauges may be
/// changed on any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigPtr(NonNull<c_void>);

/// Wakes a stream on its own thread, from any thread.
#[derive(Debug)]
pub(crate) struct StreamScheduler(NonNull<c_void>);

/// Calls a configuration on the main thread, from any thread.
#[derive(Debug)]
pub(crate) struct ConfigScheduler(NonNull<c_void>);

/// Source of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MetadataSource {
    /// The stream's own.
    Dynamic = 0,
    /// That of its route.
    Route = 1,
}

/// Key of a value of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetadataKey {
    pub(crate) name: Vec<u8>,
    /// Where Envoy has it: the same for all requests of a route.
    pub(crate) address: usize,
}

/// A value of metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MetadataValue {
    Text(Vec<u8>),
    Number(f64),
    Flag(bool),
    /// A list, of which only the texts are told.
    Texts(Vec<Vec<u8>>),
}

/// Why a stream to a cluster could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// There is no such cluster.
    NoCluster,
    /// It has no healthy host, or the request was refused.
    Refused,
}

/// Bytes of the module's or of Envoy's.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Buffer {
    ptr: *const c_char,
    len: usize,
}

/// A header field of the module's or of Envoy's.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) key: Buffer,
    pub(crate) value: Buffer,
}

macro_rules! callbacks {
    ($($name:ident as $symbol:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(
                #[link_name = concat!("envoy_dynamic_module_callback_", stringify!($symbol))]
                fn $name($($arg: $type),*) $(-> $result)?;
            )*
        }
    };
}

callbacks! {
    callback_log as log(level: u32, message: Buffer);
    is_validation_mode as is_validation_mode() -> bool;
    get_header as http_get_header(stream: *mut c_void, of: u32, key: Buffer, result: *mut Buffer,
        index: usize, count: *mut usize) -> bool;
    set_header as http_set_header(stream: *mut c_void, of: u32, key: Buffer, value: Buffer) -> bool;
    clear_route_cache as http_clear_route_cache(stream: *mut c_void);
    get_attribute_string as http_filter_get_attribute_string(stream: *mut c_void, id: u32,
        result: *mut Buffer) -> bool;
    get_attribute_int as http_filter_get_attribute_int(stream: *mut c_void, id: u32,
        result: *mut u64) -> bool;
    get_metadata_string as http_get_metadata_string(stream: *mut c_void, source: u32, ns: Buffer,
        key: Buffer, result: *mut Buffer) -> bool;
    get_metadata_number as http_get_metadata_number(stream: *mut c_void, source: u32, ns: Buffer,
        key: Buffer, result: *mut f64) -> bool;
    get_metadata_bool as http_get_metadata_bool(stream: *mut c_void, source: u32, ns: Buffer,
        key: Buffer, result: *mut bool) -> bool;
    get_metadata_keys_count as http_get_metadata_keys_count(stream: *mut c_void, source: u32,
        ns: Buffer) -> usize;
    get_metadata_keys as http_get_metadata_keys(stream: *mut c_void, source: u32, ns: Buffer,
        results: *mut Buffer) -> bool;
    get_metadata_list_size as http_get_metadata_list_size(stream: *mut c_void, source: u32,
        ns: Buffer, key: Buffer, result: *mut usize) -> bool;
    get_metadata_list_string as http_get_metadata_list_string(stream: *mut c_void, source: u32,
        ns: Buffer, key: Buffer, index: usize, result: *mut Buffer) -> bool;
    get_filter_state_bytes as http_get_filter_state_bytes(stream: *mut c_void, key: Buffer,
        result: *mut Buffer) -> bool;
    get_filter_state_typed as http_get_filter_state_typed(stream: *mut c_void, key: Buffer,
        result: *mut Buffer) -> bool;
    set_filter_state_bytes as http_set_filter_state_bytes(stream: *mut c_void, key: Buffer,
        value: Buffer) -> bool;
    get_body_size as http_get_body_size(stream: *mut c_void, of: u32) -> usize;
    send_response as http_send_response(stream: *mut c_void, status: u32, headers: *mut Header,
        count: usize, body: Buffer, details: Buffer);
    continue_decoding as http_filter_continue_decoding(stream: *mut c_void);
    scheduler_new as http_filter_scheduler_new(stream: *mut c_void) -> *mut c_void;
    scheduler_commit as http_filter_scheduler_commit(scheduler: *mut c_void, event: u64);
    scheduler_delete as http_filter_scheduler_delete(scheduler: *mut c_void);
    config_scheduler_new as http_filter_config_scheduler_new(config: *mut c_void) -> *mut c_void;
    config_scheduler_commit as http_filter_config_scheduler_commit(scheduler: *mut c_void,
        event: u64);
    config_scheduler_delete as http_filter_config_scheduler_delete(scheduler: *mut c_void);
    define_counter as http_filter_config_define_counter(config: *mut c_void, name: Buffer,
        labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    define_gauge as http_filter_config_define_gauge(config: *mut c_void, name: Buffer,
        labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    define_histogram as http_filter_config_define_histogram(config: *mut c_void, name: Buffer,
        labels: *mut Buffer, label_count: usize, id: *mut usize) -> u32;
    increment_counter as http_filter_config_increment_counter(config: *mut c_void, id: usize,
        labels: *mut Buffer, label_count: usize, value: u64) -> u32;
    set_gauge as http_filter_config_set_gauge(config: *mut c_void, id: usize, labels: *mut Buffer,
        label_count: usize, value: u64) -> u32;
    record_histogram as http_filter_config_record_histogram_value(config: *mut c_void, id: usize,
        labels: *mut Buffer, label_count: usize, value: u64) -> u32;
    start_http_stream as http_filter_config_start_http_stream(config: *mut c_void, id: *mut u64,
        cluster: Buffer, headers: *mut Header, count: usize, body: Buffer, end: bool,
        timeout_ms: u64) -> u32;
    reset_http_stream as http_filter_config_reset_http_stream(config: *mut c_void, id: u64);
}

// SAFETY: all calls of a `ConfigPtr` that are made outside of the main thread change metrics, which
// Envoy keeps in atomics; the list of them is fixed when `config_new` returns.
unsafe impl Send for ConfigPtr {}
// SAFETY: as above.
unsafe impl Sync for ConfigPtr {}
// SAFETY: Envoy allows to commit from any thread. Nobody else has the pointer.
unsafe impl Send for StreamScheduler {}
// SAFETY: as above; a commit only posts to the thread of the stream.
unsafe impl Sync for StreamScheduler {}
// SAFETY: as for `StreamScheduler`.
unsafe impl Send for ConfigScheduler {}
// SAFETY: as for `StreamScheduler`.
unsafe impl Sync for ConfigScheduler {}

// === impl StreamPtr ===

impl StreamPtr {
    const REQUEST_HEADERS: u32 = 0;
    /// The bodies' parts in the hook that is running, of the request and of the response.
    const RECEIVED_BODIES: [u32; 2] = [0, 2];

    /// Returns the stream of a hook; `None` if the pointer is null.
    ///
    /// # Safety
    /// The pointer is Envoy's, of the hook that is running.
    pub(crate) unsafe fn new(stream: *mut c_void) -> Option<Self> {
        NonNull::new(stream).map(|stream| Self(stream, PhantomData))
    }

    /// Hands the first value of a request header to `read`; none if there is none.
    #[inline]
    pub(crate) fn request_header<R>(self, name: &str, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut value = Buffer::EMPTY;
        // SAFETY: the stream is valid; Envoy writes `value` before it returns true.
        let found = unsafe {
            get_header(
                self.raw(),
                Self::REQUEST_HEADERS,
                Buffer::of(name),
                &mut value,
                0,
                null_mut(),
            )
        };
        // SAFETY: the bytes are Envoy's until the hook ends, and `read` changes no header.
        found.then(|| read(unsafe { value.bytes() }))
    }

    /// An attribute that is a text, by its number.
    pub(crate) fn attribute(self, id: u32) -> Option<Vec<u8>> {
        // SAFETY: the stream is valid; `owned` copies what Envoy has written.
        owned(|result| unsafe { get_attribute_string(self.raw(), id, result) })
    }

    /// An attribute that is a whole number, by its number.
    pub(crate) fn number_attribute(self, id: u32) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the stream is valid, and Envoy writes a result before it returns true.
        let is_there = unsafe { get_attribute_int(self.raw(), id, &raw mut number) };
        is_there.then_some(number)
    }

    /// A value of metadata, if it is of `kind`: Envoy has a call for each. If it is of another one, Envoy
    /// writes an error to its log, unless it was asked for a list; of values that are not there it writes
    /// nothing.
    pub(crate) fn metadata(
        self,
        source: MetadataSource,
        ns: &str,
        key: &str,
        kind: MetadataKind,
    ) -> Option<MetadataValue> {
        let (of, ns, key) = (source as u32, Buffer::of(ns), Buffer::of(key));
        let (mut number, mut flag, mut len) = (0.0, false, 0);
        // SAFETY: the stream is valid, and the names live as long as the calls. Envoy writes a result
        // before it returns true.
        unsafe {
            match kind {
                MetadataKind::Text => owned(|to| get_metadata_string(self.raw(), of, ns, key, to))
                    .map(MetadataValue::Text),
                MetadataKind::Number => get_metadata_number(self.raw(), of, ns, key, &mut number)
                    .then_some(MetadataValue::Number(number)),
                MetadataKind::Flag => get_metadata_bool(self.raw(), of, ns, key, &mut flag)
                    .then_some(MetadataValue::Flag(flag)),
                MetadataKind::Texts => {
                    let found = get_metadata_list_size(self.raw(), of, ns, key, &mut len);
                    let text = |index| {
                        owned(|to| get_metadata_list_string(self.raw(), of, ns, key, index, to))
                    };
                    found.then(|| MetadataValue::Texts((0..len).filter_map(text).collect()))
                }
            }
        }
    }

    /// The keys of a namespace of metadata.
    pub(crate) fn metadata_keys(self, source: MetadataSource, ns: &str) -> Vec<MetadataKey> {
        let (of, ns) = (source as u32, Buffer::of(ns));
        // SAFETY: as in `metadata`; Envoy fills as many buffers as it has counted.
        unsafe {
            let count = get_metadata_keys_count(self.raw(), of, ns);
            let mut keys = vec![Buffer::EMPTY; count];
            if count == 0 || !get_metadata_keys(self.raw(), of, ns, keys.as_mut_ptr()) {
                return Vec::new();
            }
            let key = |key: &Buffer| MetadataKey {
                name: key.bytes().to_vec(),
                address: key.ptr.addr(),
            };
            keys.iter().map(key).collect()
        }
    }

    /// A value of the filter state.
    pub(crate) fn filter_state(self, key: &str) -> Option<Vec<u8>> {
        let key = Buffer::of(key);
        // SAFETY: the stream is valid; `owned` copies what Envoy has written.
        unsafe {
            owned(|to| get_filter_state_bytes(self.raw(), key, to))
                .or_else(|| owned(|to| get_filter_state_typed(self.raw(), key, to)))
        }
    }

    /// Leaves notes in the filter state, with those of earlier filters.
    pub(crate) fn note(self, notes: Notes) {
        let earlier = |name: &str| {
            let value = self.filter_state(&state_name(name))?;
            String::from_utf8(value).ok()
        };
        for (name, value) in joined(notes, earlier) {
            if name == MARK {
                let key = Buffer::of(MARK_HEADER);
                // None removes the header.
                let text = if value.is_empty() {
                    Buffer::EMPTY
                } else {
                    Buffer::of(&value)
                };
                // SAFETY: the stream is valid; Envoy copies both texts. Wasm filters have the route chosen
                // anew, too.
                unsafe {
                    set_header(self.raw(), Self::REQUEST_HEADERS, key, text);
                    clear_route_cache(self.raw());
                }
            }
            let key = state_name(name);
            // SAFETY: as above.
            unsafe { set_filter_state_bytes(self.raw(), Buffer::of(&key), Buffer::of(&value)) };
        }
    }

    /// The bytes of a body in the hook that is running; `of` is 0 for the request's, 1 for the
    /// response's.
    pub(crate) fn body_bytes(self, of: usize) -> u64 {
        let Some(of) = Self::RECEIVED_BODIES.get(of) else {
            return 0;
        };
        // SAFETY: the stream is valid.
        let bytes = unsafe { get_body_size(self.raw(), *of) };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns a way to wake the stream from another thread.
    pub(crate) fn scheduler(self) -> Option<StreamScheduler> {
        // SAFETY: the stream is valid; the scheduler is this module's until it is deleted.
        NonNull::new(unsafe { scheduler_new(self.raw()) }).map(StreamScheduler)
    }

    /// Makes the request go on.
    ///
    /// # Safety
    /// The stream was stopped in its request's headers. No reference into the module's part of it is alive:
    /// Envoy may run other hooks of the stream meanwhile, and destroy it.
    pub(crate) unsafe fn resume(self) {
        // SAFETY: the stream is valid, and was stopped.
        unsafe { continue_decoding(self.raw()) };
    }

    /// Answers the request.
    ///
    /// # Safety
    /// As for `resume`.
    pub(crate) unsafe fn reply(self, status: u32, headers: &[(&str, &str)], body: &[u8]) {
        let mut headers = to_headers(headers);
        // SAFETY: the stream is valid, and Envoy copies everything.
        unsafe {
            send_response(
                self.raw(),
                status,
                headers.as_mut_ptr(),
                headers.len(),
                Buffer::of(body),
                Buffer::of(RESPONSE_DETAILS),
            );
        }
    }

    fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

// === impl ConfigPtr ===

impl ConfigPtr {
    /// Returns the configuration of a hook; `None` if the pointer is null.
    ///
    /// # Safety
    /// The pointer is Envoy's, of the hook that is running.
    pub(crate) unsafe fn new(configuration: *mut c_void) -> Option<Self> {
        NonNull::new(configuration).map(Self)
    }

    /// Makes a metric known, in `config_new` only, and returns its number.
    pub(crate) fn define(self, kind: Kind, name: &str) -> Option<usize> {
        let define = match kind {
            Kind::Counter => define_counter,
            Kind::Gauge => define_gauge,
            Kind::Histogram => define_histogram,
        };
        let mut id = 0;
        // SAFETY: the configuration is valid, Envoy copies the name, and there are no labels.
        let result = unsafe { define(self.raw(), Buffer::of(name), null_mut(), 0, &mut id) };
        (result == 0).then_some(id)
    }

    /// Adds to a counter.
    pub(crate) fn add(self, id: usize, by: u64) {
        // SAFETY: the configuration is valid, and there are no labels. An unknown number is refused.
        unsafe { increment_counter(self.raw(), id, null_mut(), 0, by) };
    }

    /// Sets a gauge.
    pub(crate) fn set_gauge(self, id: usize, to: u64) {
        // SAFETY: as in `add`.
        unsafe { set_gauge(self.raw(), id, null_mut(), 0, to) };
    }

    /// Adds a value to a histogram, on one of Envoy's own threads.
    pub(crate) fn record(self, id: usize, value: u64) {
        // SAFETY: as in `add`; histograms are kept by thread.
        unsafe { record_histogram(self.raw(), id, null_mut(), 0, value) };
    }

    /// Returns a way to call the configuration on the main thread.
    pub(crate) fn scheduler(self) -> Option<ConfigScheduler> {
        // SAFETY: the configuration is valid; the scheduler is this module's until it is deleted.
        NonNull::new(unsafe { config_scheduler_new(self.raw()) }).map(ConfigScheduler)
    }

    /// Opens a stream to `cluster` and ends this side of it, on the main thread; a time limit of zero is
    /// none. Hooks of the stream may run before this returns.
    pub(crate) fn start_stream(
        self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout_ms: u64,
    ) -> Result<u64, StartError> {
        const NO_CLUSTER: u32 = 2;
        let mut headers = to_headers(headers);
        let mut id = 0;
        // SAFETY: the configuration is valid, this is the main thread, and Envoy copies everything.
        let result = unsafe {
            start_http_stream(
                self.raw(),
                &mut id,
                Buffer::of(cluster),
                headers.as_mut_ptr(),
                headers.len(),
                Buffer::of(body),
                true,
                timeout_ms,
            )
        };
        match result {
            0 => Ok(id),
            NO_CLUSTER => Err(StartError::NoCluster),
            _ => Err(StartError::Refused),
        }
    }

    /// Resets a stream, on the main thread. Hooks of the stream may run before this returns.
    pub(crate) fn reset_stream(self, id: u64) {
        // SAFETY: the configuration is valid, and this is the main thread. An unknown number is none.
        unsafe { reset_http_stream(self.raw(), id) };
    }

    fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

// === impl StreamScheduler ===

impl StreamScheduler {
    /// Makes Envoy run the stream's hook; nothing happens if the stream has gone.
    pub(crate) fn commit(&self) {
        // SAFETY: the scheduler lives until it is dropped.
        unsafe { scheduler_commit(self.0.as_ptr(), 0) };
    }
}

impl Drop for StreamScheduler {
    fn drop(&mut self) {
        // SAFETY: made by `scheduler_new`, and deleted once.
        unsafe { scheduler_delete(self.0.as_ptr()) };
    }
}

// === impl ConfigScheduler ===

impl ConfigScheduler {
    /// Makes Envoy run the configuration's hook; nothing happens if the configuration has gone.
    pub(crate) fn commit(&self) {
        // SAFETY: the scheduler lives until it is dropped.
        unsafe { config_scheduler_commit(self.0.as_ptr(), 0) };
    }
}

impl Drop for ConfigScheduler {
    fn drop(&mut self) {
        // SAFETY: made by `config_scheduler_new`, and deleted once.
        unsafe { config_scheduler_delete(self.0.as_ptr()) };
    }
}

// === impl Buffer ===

impl Buffer {
    const EMPTY: Self = Self {
        ptr: null(),
        len: 0,
    };

    /// Borrows the bytes; they must live as long as Envoy uses the result.
    pub(crate) fn of(bytes: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let bytes = bytes.as_ref();
        Self {
            ptr: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }

    /// The bytes.
    ///
    /// # Safety
    /// They are there, and do not change while the result is in use.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() {
            &[]
        } else {
            // SAFETY: as this function demands.
            unsafe { core::slice::from_raw_parts(self.ptr.cast(), self.len) }
        }
    }
}

// === free functions ===

/// Writes a line to Envoy's log, under `dynamic_modules`.
pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => 1,
        Level::Warn => 3,
        Level::Error => 4,
    };
    // SAFETY: Envoy's loggers may be called on any thread, and copy the message.
    unsafe { callback_log(level, Buffer::of(message)) };
}

/// Returns whether Envoy only checks configurations. On the main thread.
pub(crate) fn only_validates() -> bool {
    // SAFETY: there is nothing to be valid.
    unsafe { is_validation_mode() }
}

/// Copies what `write` makes Envoy write.
fn owned(write: impl FnOnce(&mut Buffer) -> bool) -> Option<Vec<u8>> {
    let mut value = Buffer::EMPTY;
    // SAFETY: the bytes are Envoy's until the hook ends.
    write(&mut value).then(|| unsafe { value.bytes() }.to_vec())
}

/// Borrows header fields; they must live as long as Envoy uses the result.
pub(crate) fn to_headers(headers: &[(&str, &str)]) -> Vec<Header> {
    let header = |(key, value): &(&str, &str)| Header {
        key: Buffer::of(key),
        value: Buffer::of(value),
    };
    headers.iter().map(header).collect()
}
