//! A real etcd on loopback, and a link to it that can be cut.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tempfile::TempDir;

mod buckets;
mod link;
mod shared;
mod store;

pub(crate) use link::Link;

/// One member, killed when it is dropped.
pub(crate) struct Etcd {
    dir: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Child,
}

// === impl Etcd ===

impl Etcd {
    /// Starts it and waits until it answers.
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let (client, peer) = (free_address(), free_address());
        let child = spawn(dir.path(), client, peer);
        let etcd = Self {
            dir,
            client,
            peer,
            child,
        };
        etcd.ready().await;
        etcd
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.client
    }

    /// Kills it where it stands.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, with what it had, after it was killed.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.dir.path(), self.client, self.peer);
        self.ready().await;
    }

    /// A client of its own.
    pub(crate) async fn client(&self) -> Client {
        connect(self.client).await
    }

    async fn ready(&self) {
        loop {
            let mut client = self.client().await;
            if client.get("ready", None).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === free functions ===

/// A client of the etcd at `address`, which need not be there yet.
async fn connect(address: SocketAddr) -> Client {
    let options = ConnectOptions::new().with_require_leader(true);
    let endpoint = format!("http://{address}");
    Client::connect([endpoint], Some(options)).await.unwrap()
}

/// Returns an address without a listener.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn spawn(dir: &Path, client: SocketAddr, peer: SocketAddr) -> Child {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = Command::new(binary());
    command
        .arg("--data-dir")
        .arg(dir)
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let error = "etcd does not start: `just setup` installs it";
    command.spawn().expect(error)
}

/// `ETCD_BIN`, or what `just setup` has installed, or what is on the PATH.
fn binary() -> PathBuf {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../.tools/etcd/usr/bin/etcd");
    match std::env::var_os("ETCD_BIN") {
        Some(path) => path.into(),
        None if Path::new(installed).exists() => installed.into(),
        None => "etcd".into(),
    }
}
