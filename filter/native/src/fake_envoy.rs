//! Envoy's side of the C interface for tests: streams and configurations are numbers in pointers.

use core::ffi::{c_char, c_void};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::envoy::MetadataValue;

/// All that this Envoy knows. Tests run beside one another, each with streams and configurations of its
/// own numbers.
#[derive(Debug, Default)]
pub(crate) struct FakeEnvoy {
    last: usize,
    /// Request headers of streams.
    headers: BTreeMap<usize, Vec<(String, String)>>,
    /// Metadata by stream, source and namespace.
    metadata: BTreeMap<(usize, u32, String), Vec<(String, MetadataValue)>>,
    /// Streams whose hook is to run, oldest first.
    pub(crate) woken: VecDeque<usize>,
    /// Streams whose route is chosen anew.
    pub(crate) rerouted: Vec<usize>,
    /// Streams that went on, in order.
    pub(crate) resumed: Vec<usize>,
    /// Statuses and headers of answers, by stream.
    pub(crate) replies: BTreeMap<usize, (u32, Vec<(String, String)>)>,
    /// Configurations whose hook is to run.
    pub(crate) scheduled: Vec<usize>,
    /// Schedulers that are not deleted.
    pub(crate) schedulers: Vec<usize>,
    /// Streams that were opened: of which configuration, to which cluster, with which body.
    pub(crate) opened: Vec<(usize, u64, String, Vec<u8>)>,
    /// Streams that were reset: of which configuration, and their numbers.
    pub(crate) reset: Vec<(usize, u64)>,
    /// Counters by configuration and name.
    counters: BTreeMap<(usize, String), u64>,
    metrics: Vec<String>,
    pub(crate) logs: Vec<String>,
}

static FAKE: Mutex<Option<FakeEnvoy>> = Mutex::new(None);

/// Time after which [`eventually`] looks again although nothing has changed here, and how often it does.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 2000;

/// Signals that the fake may have changed.
static CHANGED: Condvar = Condvar::new();

/// The fake for a short look.
pub(crate) fn fake() -> Locked {
    let mut fake = FAKE.lock().unwrap_or_else(PoisonError::into_inner);
    fake.get_or_insert_with(FakeEnvoy::default);
    Locked(fake)
}

pub(crate) struct Locked(MutexGuard<'static, Option<FakeEnvoy>>);

impl core::ops::Deref for Locked {
    type Target = FakeEnvoy;

    fn deref(&self) -> &FakeEnvoy {
        self.0.as_ref().unwrap()
    }
}

impl core::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut FakeEnvoy {
        // Those that wait look when it is unlocked.
        CHANGED.notify_all();
        self.0.as_mut().unwrap()
    }
}

// === impl FakeEnvoy ===

impl FakeEnvoy {
    /// A number that nothing else has, for a stream or a configuration.
    pub(crate) fn new_number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    /// A new stream with these request headers.
    pub(crate) fn new_stream(&mut self, headers: &[(&str, &str)]) -> usize {
        let stream = self.new_number();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.headers
            .insert(stream, headers.iter().map(owned).collect());
        stream
    }

    /// Gives a stream a namespace of metadata. Streams with the same have it at other places.
    pub(crate) fn set_metadata(
        &mut self,
        stream: usize,
        of: u32,
        ns: &str,
        all: &[(&str, MetadataValue)],
    ) {
        let owned = |(key, value): &(&str, MetadataValue)| ((*key).to_owned(), value.clone());
        let all = all.iter().map(owned).collect();
        self.metadata.insert((stream, of, ns.to_owned()), all);
    }

    fn namespace(&self, stream: Ptr, of: u32, ns: Buffer) -> &[(String, MetadataValue)] {
        let all = self.metadata.get(&(stream.addr(), of, ns.text()));
        all.map_or(&[], Vec::as_slice)
    }

    /// Hands out a value that `read` can read; of others a line is logged, as Envoy does.
    fn tell<R>(
        &mut self,
        (stream, of, ns, key): (Ptr, u32, Buffer, Buffer),
        (result, kind): (*mut R, &str),
        read: impl FnOnce(&MetadataValue) -> Option<R>,
    ) -> bool {
        let key = key.text();
        let value = self
            .namespace(stream, of, ns)
            .iter()
            .find(|(name, _)| *name == key);
        let Some((_, value)) = value else {
            return false;
        };
        let Some(value) = read(value) else {
            self.logs.push(format!("key {key} is not a {kind}"));
            return false;
        };
        // SAFETY: the module's place.
        #[allow(unsafe_code, reason = "C's interface")]
        unsafe {
            result.write(value);
        }
        true
    }

    /// A counter of a configuration.
    pub(crate) fn counter(&self, configuration: usize, name: &str) -> u64 {
        let key = (configuration, format!("tollgate.{name}"));
        self.counters.get(&key).copied().unwrap_or(0)
    }
}

/// Waits for something that another thread does: it is looked for when the fake changes, and every few milliseconds,
/// for a thread that ends changes nothing here.
pub(crate) fn eventually<R>(what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    let mut in_vain = 0;
    while in_vain < LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        let changed = CHANGED.wait_timeout(fake().0, LOOK_EVERY);
        let (fake, waited) = changed.unwrap_or_else(PoisonError::into_inner);
        drop(fake);
        in_vain += u32::from(waited.timed_out());
    }
    panic!("waited in vain for {what}");
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Buffer {
    ptr: *const c_char,
    len: usize,
}

impl Buffer {
    /// Bytes of this Envoy's, which stay where they are as long as nothing else is set.
    fn of(bytes: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let bytes = bytes.as_ref();
        Self {
            ptr: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }

    #[allow(unsafe_code, reason = "C's interface")]
    fn text(self) -> String {
        // SAFETY: the module's bytes, which live as long as the call.
        let bytes = unsafe { core::slice::from_raw_parts(self.ptr.cast(), self.len) };
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[allow(unsafe_code, reason = "C's interface")]
    fn bytes(self) -> Vec<u8> {
        // SAFETY: as in `text`.
        unsafe { core::slice::from_raw_parts(self.ptr.cast(), self.len) }.to_vec()
    }
}

type Ptr = *mut c_void;

/// Callbacks that nothing in the tests needs.
macro_rules! absent {
    ($($name:ident($($ty:ty),*) -> $result:ty = $value:expr;)*) => {$(
        #[allow(unsafe_code, reason = "C's interface")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $ty),*) -> $result {
            $value
        }
    )*};
}

absent! {
    envoy_dynamic_module_callback_is_validation_mode() -> bool = false;
    envoy_dynamic_module_callback_http_filter_get_attribute_string(Ptr, u32, Ptr) -> bool = false;
    envoy_dynamic_module_callback_http_filter_get_attribute_int(Ptr, u32, Ptr) -> bool = false;
    envoy_dynamic_module_callback_http_get_filter_state_bytes(Ptr, Buffer, Ptr) -> bool = false;
    envoy_dynamic_module_callback_http_get_filter_state_typed(Ptr, Buffer, Ptr) -> bool = false;
    envoy_dynamic_module_callback_http_set_filter_state_bytes(Ptr, Buffer, Buffer) -> bool = true;
    envoy_dynamic_module_callback_http_get_body_size(Ptr, u32) -> usize = 0;
    envoy_dynamic_module_callback_http_filter_config_set_gauge(Ptr, usize, Ptr, usize, u64) -> u32 = 0;
    envoy_dynamic_module_callback_http_filter_config_record_histogram_value(Ptr, usize, Ptr, usize, u64) -> u32 = 0;
}

macro_rules! present {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        #[allow(unsafe_code, reason = "C's interface")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) $(-> $result)? $body
    )*};
}

present! {
    fn envoy_dynamic_module_callback_log(_level: u32, message: Buffer) {
        fake().logs.push(message.text());
    }

    fn envoy_dynamic_module_callback_http_get_header(stream: Ptr, _of: u32, key: Buffer,
        result: *mut Buffer, _index: usize, _count: *mut usize) -> bool {
        let fake = fake();
        let headers = fake.headers.get(&stream.addr());
        let value = headers.and_then(|all| all.iter().find(|(name, _)| *name == key.text()));
        if let Some((_, value)) = value {
            let value = Buffer { ptr: value.as_ptr().cast(), len: value.len() };
            // SAFETY: the module's buffer. A stream's headers stay as they are.
            unsafe { result.write(value) };
        }
        value.is_some()
    }

    fn envoy_dynamic_module_callback_http_set_header(stream: Ptr, _of: u32, key: Buffer,
        value: Buffer) -> bool {
        let mut fake = fake();
        let headers = fake.headers.entry(stream.addr()).or_default();
        headers.retain(|(name, _)| *name != key.text());
        if !value.ptr.is_null() {
            headers.push((key.text(), value.text()));
        }
        true
    }

    fn envoy_dynamic_module_callback_http_clear_route_cache(stream: Ptr) {
        fake().rerouted.push(stream.addr());
    }

    fn envoy_dynamic_module_callback_http_get_metadata_string(stream: Ptr, of: u32, ns: Buffer,
        key: Buffer, result: *mut Buffer) -> bool {
        fake().tell((stream, of, ns, key), (result, "string"), |value| match value {
            MetadataValue::Text(text) => Some(Buffer::of(text)),
            _ => None,
        })
    }

    fn envoy_dynamic_module_callback_http_get_metadata_number(stream: Ptr, of: u32, ns: Buffer,
        key: Buffer, result: *mut f64) -> bool {
        fake().tell((stream, of, ns, key), (result, "number"), |value| match value {
            MetadataValue::Number(number) => Some(*number),
            _ => None,
        })
    }

    fn envoy_dynamic_module_callback_http_get_metadata_bool(stream: Ptr, of: u32, ns: Buffer,
        key: Buffer, result: *mut bool) -> bool {
        fake().tell((stream, of, ns, key), (result, "bool"), |value| match value {
            MetadataValue::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    fn envoy_dynamic_module_callback_http_get_metadata_list_size(stream: Ptr, of: u32, ns: Buffer,
        key: Buffer, result: *mut usize) -> bool {
        let fake = fake();
        let value = fake.namespace(stream, of, ns).iter().find(|(name, _)| *name == key.text());
        let Some((_, MetadataValue::Texts(texts))) = value else { return false };
        // SAFETY: the module's number.
        unsafe { result.write(texts.len()) };
        true
    }

    fn envoy_dynamic_module_callback_http_get_metadata_list_string(stream: Ptr, of: u32, ns: Buffer,
        key: Buffer, index: usize, result: *mut Buffer) -> bool {
        fake().tell((stream, of, ns, key), (result, "list"), |value| match value {
            MetadataValue::Texts(texts) => texts.get(index).map(Buffer::of),
            _ => None,
        })
    }

    fn envoy_dynamic_module_callback_http_get_metadata_keys_count(stream: Ptr, of: u32,
        ns: Buffer) -> usize {
        fake().namespace(stream, of, ns).len()
    }

    fn envoy_dynamic_module_callback_http_get_metadata_keys(stream: Ptr, of: u32, ns: Buffer,
        results: *mut Buffer) -> bool {
        for (index, (key, _)) in fake().namespace(stream, of, ns).iter().enumerate() {
            // SAFETY: the module's places, as many as there are keys.
            unsafe { results.add(index).write(Buffer::of(key)) };
        }
        true
    }

    fn envoy_dynamic_module_callback_http_send_response(stream: Ptr, status: u32,
        headers: *mut [Buffer; 2], count: usize, _body: Buffer, _details: Buffer) {
        // SAFETY: the module's headers, so many.
        let headers = unsafe { core::slice::from_raw_parts(headers, count) };
        let headers = headers.iter().map(|[name, value]| (name.text(), value.text())).collect();
        fake().replies.insert(stream.addr(), (status, headers));
    }

    fn envoy_dynamic_module_callback_http_filter_continue_decoding(stream: Ptr) {
        fake().resumed.push(stream.addr());
    }

    fn envoy_dynamic_module_callback_http_filter_scheduler_new(stream: Ptr) -> Ptr {
        fake().schedulers.push(stream.addr());
        stream
    }

    fn envoy_dynamic_module_callback_http_filter_scheduler_commit(scheduler: Ptr, _event: u64) {
        let mut fake = fake();
        assert!(fake.schedulers.contains(&scheduler.addr()), "it was deleted");
        fake.woken.push_back(scheduler.addr());
    }

    fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: Ptr) {
        let mut fake = fake();
        let index = fake.schedulers.iter().position(|known| *known == scheduler.addr());
        let index = index.unwrap_or_else(|| panic!("it was deleted twice"));
        fake.schedulers.remove(index);
    }

    fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(config: Ptr) -> Ptr {
        config
    }

    fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(scheduler: Ptr, _event: u64) {
        fake().scheduled.push(scheduler.addr());
    }

    fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(_scheduler: Ptr) {}

    fn envoy_dynamic_module_callback_http_filter_config_define_counter(_config: Ptr, name: Buffer,
        _labels: Ptr, _label_count: usize, id: *mut usize) -> u32 {
        let mut fake = fake();
        fake.metrics.push(name.text());
        // SAFETY: the module's number.
        unsafe { id.write(fake.metrics.len() - 1) };
        0
    }

    fn envoy_dynamic_module_callback_http_filter_config_define_gauge(_config: Ptr, _name: Buffer,
        _labels: Ptr, _label_count: usize, id: *mut usize) -> u32 {
        // SAFETY: the module's number.
        unsafe { id.write(usize::MAX) };
        0
    }

    fn envoy_dynamic_module_callback_http_filter_config_define_histogram(_config: Ptr, _name: Buffer,
        _labels: Ptr, _label_count: usize, id: *mut usize) -> u32 {
        // SAFETY: the module's number.
        unsafe { id.write(usize::MAX) };
        0
    }

    fn envoy_dynamic_module_callback_http_filter_config_increment_counter(config: Ptr, id: usize,
        _labels: Ptr, _label_count: usize, value: u64) -> u32 {
        let mut fake = fake();
        let name = fake.metrics[id].clone();
        *fake.counters.entry((config.addr(), name)).or_default() += value;
        0
    }

    fn envoy_dynamic_module_callback_http_filter_config_start_http_stream(config: Ptr, id: *mut u64,
        cluster: Buffer, _headers: Ptr, _count: usize, body: Buffer, _end: bool,
        _timeout_ms: u64) -> u32 {
        let cluster = cluster.text();
        if cluster.starts_with("no-") {
            return 2;
        }
        let mut fake = fake();
        let number = u64::try_from(fake.new_number()).unwrap();
        fake.opened.push((config.addr(), number, cluster, body.bytes()));
        // SAFETY: the module's number.
        unsafe { id.write(number) };
        0
    }

    fn envoy_dynamic_module_callback_http_filter_config_reset_http_stream(config: Ptr, id: u64) {
        fake().reset.push((config.addr(), id));
    }
}
