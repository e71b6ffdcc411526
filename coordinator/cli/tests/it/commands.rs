//! The commands that talk to a coordinator, with the real binary at both ends.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::NamedTempFile;
use tollgate_net::wire::LeaseServiceClient;
use tollgate_proto::response::Refreshed;
use tonic::transport::Channel;

use crate::binary::{Serve, file, tollgate};
use crate::harness::{request, unit};

mod access;
mod cluster;
mod leases;
mod migration;
mod offline;
mod parent;
mod quotas;
mod shared_config;
mod stored;
mod terminal;
mod tls;
mod unmatched;

const CONFIG: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
limits:
- {match: tenant/acme, requests: {rate: 100, headroom: 0}, request_bytes: {rate: 50MiB}}
- {match: 'tenant/*', requests: {rate: 1000, headroom: 0}}
- {match: '*', requests: {rate: unlimited}}
groups: {silver: {requests: {rate: 500}}}
";

/// A coordinator and where its admin API is.
struct Server {
    serve: Serve,
    url: String,
    _config: NamedTempFile,
}

/// Output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

// === impl Server ===

impl Server {
    fn start() -> Self {
        Self::with(CONFIG)
    }

    fn with(config: &str) -> Self {
        let config = file(config);
        let serve = Serve::start(config.path().to_str().unwrap(), &["--skip-learning"]);
        let url = format!("http://{}", serve.address("http"));
        Self {
            serve,
            url,
            _config: config,
        }
    }

    /// Returns the output of `tollgate` with the words of `line`.
    fn say(&self, line: &str) -> CommandOutput {
        let mut args = vec!["--server", &self.url];
        args.extend(line.split_whitespace());
        say(&args, "")
    }

    /// The JSON that `tollgate` prints for the words of `line`.
    fn json(&self, line: &str) -> Value {
        self.say(&format!("{line} --json")).json()
    }

    async fn service(&self) -> LeaseServiceClient<Channel> {
        let address = format!("http://{}", self.serve.address("grpc"));
        LeaseServiceClient::connect(address).await.unwrap()
    }

    /// Returns the amount of requests of `scope` that `client` gets when it wants them again.
    async fn gets(&self, client: &str, scope: &str, sequence: u64, wants: f64) -> f64 {
        let call = request(client, &[(scope, sequence, 0.0, wants)]);
        let answer = self.service().await.refresh(call).await.unwrap();
        let answer = Refreshed::try_from(answer.into_inner()).unwrap();
        let [Ok(scope)] = &answer.scopes[..] else {
            panic!("{answer:?}");
        };
        let lease = unit(scope).answer.lease;
        lease.map_or(0.0, |lease| lease.capacity.as_f64())
    }

    /// Clients that want something: id, scope, wants.
    async fn refresh(&self, clients: &[(&str, &str, f64)]) {
        let mut service = self.service().await;
        for (client, scope, wants) in clients {
            let call = request(client, &[(scope, 1, 0.0, *wants)]);
            service.refresh(call).await.unwrap();
        }
    }
}

// === impl CommandOutput ===

impl CommandOutput {
    /// The output of a command that was done.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    #[track_caller]
    fn json(self) -> Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Asserts that the command failed with `code` and printed `text`, and nothing else.
    #[track_caller]
    fn failed(self, code: i32, text: &str) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert!(self.err.contains(text), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

// === free functions ===

/// Returns the output of `tollgate` with `args` if `input` is typed.
pub(crate) fn say(args: &[&str], input: &str) -> CommandOutput {
    let mut child = tollgate(args)
        .env_remove("TOLLGATE_SERVER")
        .env_remove("TOLLGATE_TOKEN")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing may be gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    CommandOutput {
        code: status.code().unwrap(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}
