//! Calls to coordinators at an address.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{env, fs};

use tollgate_filter::{Address, Destination, Host, HostError, Pem, Tls};

use super::*;
use crate::engine::Engine;
use crate::host::NativeHost;
use crate::process::Process;
use crate::worker::{Bound, WorkerCell};

/// A certificate of nobody's.
const CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUNVXv572xwxMXpMfB+e0Z6xEZ6bwwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjUxNTAxMzNaGA8yMTI2MTEwMTE1MDEz
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABO3j
o9Gmi9q6ul0U1/2Qe/zxrUa8d0qeS17PkNPCmuqVYtIMvpxz7tP1TH7frbz7q5B+
ED3lHfWGeO1/L1ZNJ96jUzBRMB0GA1UdDgQWBBSIO+1g3No0pWDzPn7/HWGKHm08
uzAfBgNVHSMEGDAWgBSIO+1g3No0pWDzPn7/HWGKHm08uzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQCE/saeEPuJmNN+hTV2Xzo+BzRjYzXcgvAY
okpAVkqCfwIhANnMbUicfC0XaUMA3rSag1AeMORaAjw+mkNmgYE1r/Pl
-----END CERTIFICATE-----
";

/// A configuration with coordinators at an address, as this thread uses it.
struct AtAddress {
    loaded: Loaded,
    server: SilentServer,
    worker: Arc<WorkerCell>,
    host: NativeHost,
    address: Address,
}

// === impl AtAddress ===

impl AtAddress {
    fn load(target: &str) -> Loaded {
        let coordinator = format!(r#"{{"address": "{target}"}}"#);
        let loaded = Loaded::try_new(&by_tenant(&coordinator, "", ""));
        assert!(!loaded.own.is_null());
        loaded
    }

    fn new() -> Self {
        let server = SilentServer::start();
        let target = server.address.to_string();
        let loaded = Self::load(&target);
        let own = loaded.own();
        let worker = Arc::clone(&Bound::of(own).unwrap().worker);
        Self {
            host: NativeHost::new(&own.process, downgraded(&worker)),
            address: Address { target, tls: None },
            loaded,
            server,
            worker,
        }
    }

    /// Waits until the engine has a stream, which it opens while there are requests.
    fn wait_for_watch(loaded: &Loaded) {
        eventually("a stream", || {
            loaded.open("acme").end();
            (fake().counter(loaded.envoy, "watches") > 0).then_some(())
        });
    }

    fn open_stream(&self) -> Result<u32, HostError> {
        let to = Destination::Address(&self.address);
        self.host.open_stream(to, "Watch", b"")
    }

    /// The number of streams and calls that go on, besides `others` that know the engine.
    fn under_way(&self, others: usize) -> usize {
        Arc::weak_count(&self.worker) - others
    }
}

fn downgraded(worker: &Arc<WorkerCell>) -> Weak<dyn Engine> {
    Arc::<WorkerCell>::downgrade(worker)
}

#[test]
fn a_stream_of_one_process_is_not_cancelled_by_the_number_of_another_ones() {
    let (one, two) = (AtAddress::new(), AtAddress::new());
    let others = Arc::weak_count(&one.worker);
    assert_eq!(others, Arc::weak_count(&two.worker));
    let tokens = [&one, &two].map(|each| each.open_stream().unwrap());
    assert_eq!(tokens[0], tokens[1], "numbers are each process's own");
    one.server.wait_for_connection();
    two.server.wait_for_connection();
    // A process with streams to clusters only.
    let process = Process::of("a cluster's");
    let cluster = NativeHost::new(&process, downgraded(&two.worker));
    cluster.cancel_stream(tokens[0]);
    drop(cluster);
    one.host.cancel_stream(tokens[0]);
    eventually("the end of the stream", || {
        (one.under_way(others) == 0).then_some(())
    });
    assert_eq!(two.under_way(others), 1, "it goes on");
    one.loaded.destroy();
    two.loaded.destroy();
}

#[test]
fn an_engine_whose_configurations_have_gone_and_come_back_opens_another_stream() {
    // The thread for calls goes on for this one.
    let others = AtAddress::new();
    let first = AtAddress::new();
    AtAddress::wait_for_watch(&first.loaded);
    first.loaded.destroy();
    let to = Destination::Address(&first.address);
    assert!(first.host.open_stream(to, "Watch", b"").is_err());
    let again = AtAddress::load(&first.address.target);
    AtAddress::wait_for_watch(&again);
    again.destroy();
    others.loaded.destroy();
}

#[test]
fn files_that_are_slow_to_read_keep_neither_a_worker_nor_other_calls_waiting() {
    let (slow, other) = (AtAddress::new(), AtAddress::new());
    let others = Arc::weak_count(&slow.worker);
    let pipe = Pipe::new("slow-ca");
    let tls = pipe.as_ca();
    let target = slow.address.target.clone();
    let (host, worker) = (slow.host.clone(), Arc::clone(&slow.worker));
    let opens = thread::spawn(move || {
        let _engine = worker.lock();
        let tls = Some(tls);
        let to = &Address { target, tls };
        host.open_stream(Destination::Address(to), "Watch", b"")
    });
    eventually("the call to return", || opens.is_finished().then_some(()));
    opens.join().unwrap().unwrap();
    other.open_stream().unwrap();
    other.server.wait_for_connection();
    // This waits for the reader.
    fs::write(&pipe.0, "no certificate").unwrap();
    eventually("the end of the stream", || {
        let under_way = Arc::weak_count(&slow.worker) - others;
        (under_way == 0).then_some(())
    });
    slow.loaded.destroy();
    other.loaded.destroy();
}

#[test]
fn files_that_take_longer_to_read_than_a_call_lasts_serve_the_next_call() {
    let slow = AtAddress::new();
    let others = Arc::weak_count(&slow.worker);
    let pipe = Pipe::new("slow-ca-of-calls");
    let address = Address {
        target: slow.address.target.clone(),
        tls: Some(pipe.as_ca()),
    };
    let call = |timeout| {
        let to = Destination::Address(&address);
        slow.host.call(to, "Refresh", b"", timeout).unwrap();
    };
    call(Duration::from_millis(1));
    eventually("the end of the call", || {
        (slow.under_way(others) == 0).then_some(())
    });
    // This waits for the reader. Another one would wait for another writer.
    fs::write(&pipe.0, CA).unwrap();
    call(Duration::from_secs(60));
    slow.server.wait_for_connection();
    slow.loaded.destroy();
}

/// A server of HTTP/2 that answers pings, so that connections stay, and nothing else.
struct SilentServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl SilentServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
        };
        let connections = Arc::clone(&server.connections);
        thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(|| answer_pings(peer));
            }
        });
        server
    }

    fn wait_for_connection(&self) {
        eventually("a connection", || {
            (self.connections.load(Ordering::SeqCst) > 0).then_some(())
        });
    }
}

fn answer_pings(mut peer: TcpStream) -> io::Result<()> {
    const PREFACE_LEN: usize = 24;
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: u8 = 6;
    const ACK: u8 = 1;
    peer.read_exact(&mut [0; PREFACE_LEN])?;
    peer.write_all(&SETTINGS)?;
    loop {
        let mut head = [0; 9];
        peer.read_exact(&mut head)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(len).unwrap()];
        peer.read_exact(&mut payload)?;
        if head[3] == PING && head[4] & ACK == 0 {
            head[4] |= ACK;
            peer.write_all(&[&head[..], &payload].concat())?;
        }
    }
}

/// A named pipe, which is read only as far as it is written.
struct Pipe(PathBuf);

impl Pipe {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("tollgate-{}-{name}", process::id()));
        let status = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        Self(path)
    }

    /// TLS with the certificates that are written into the pipe.
    fn as_ca(&self) -> Tls {
        Tls {
            ca: Some(Pem::File(self.0.to_string_lossy().into_owned())),
            files: None,
            server_name: None,
            reread_seconds: None,
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
