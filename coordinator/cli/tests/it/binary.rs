//! The `tollgate` command itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use tempfile::NamedTempFile;

use crate::harness::Answer;

pub(crate) const GOOD: &str = "listen: {grpc: '127.0.0.1:0', http: '127.0.0.1:0'}
limits: [{match: '*', requests: {rate: 5}}]";

/// `tollgate serve`, killed when it is dropped.
pub(crate) struct Serve {
    child: Child,
    ready: String,
}

pub(crate) fn tollgate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args);
    command
}

pub(crate) fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = tollgate(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

// === impl Serve ===

impl Serve {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(config: &str, args: &[&str]) -> Self {
        let mut child = tollgate(&["serve", "--config", config])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        Self { child, ready }
    }

    /// The address after `name=` in the ready line.
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        let words = self.ready.split_whitespace();
        let mut values = words.filter_map(|word| word.split_once('='));
        let (_, address) = values.find(|(key, _)| *key == name).unwrap();
        address.parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends `signal` and says how it ended and what it logged.
    pub(crate) fn end(mut self, signal: &str) -> (i32, String) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(killed.unwrap().success());
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code().unwrap(), log)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn check_says_good_or_everything_that_is_wrong() {
    let good = file(GOOD);
    let path = good.path().to_str().unwrap();
    let (code, out, err) = run(&["check", path]);
    let good = format!("{path}: good, 1 limit\n");
    assert!(code == 0 && out.starts_with(&good), "{out} {err}");

    let bad = file("limits:\n- {match: a, requests: {rate: -5}}\n- {match: a, requests: {}}\n");
    let path = bad.path().to_str().unwrap();
    let (code, out, err) = run(&["check", path]);
    let want = format!(
        "tollgate: 3 errors in {path}\n\
         {path}:2:31: limits[0].requests.rate: -5 is negative\n\
         {path}:3:11: limits[1].match: \"a\" is matched by limits[0] already\n\
         {path}:3:24: limits[1].requests.rate: is missing\n"
    );
    assert_eq!((code, out, err), (2, String::new(), want));
}

#[test]
fn check_reads_a_pipe_and_serve_does_not() {
    let mut check = tollgate(&["check", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(GOOD.as_bytes())
        .unwrap();
    let output = check.wait_with_output().unwrap();
    let message = String::from_utf8(output.stdout).unwrap();
    assert!(
        message.starts_with("/dev/stdin: good, 1 limit\n"),
        "{message}"
    );

    let mut serve = tollgate(&["serve", "--config", "/dev/stdin"]);
    serve.stdin(Stdio::piped());
    let output = serve.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    let want = "/dev/stdin: is a pipe, and only a regular file is read";
    assert!(message.contains(want), "{message}");
}

#[test]
fn check_reads_the_files_with_which_others_are_called() {
    let missing = "tls: {ca: /no/such/ca.pem}";
    let etcd = |scheme: &str, tls: &str| {
        format!("{{node: a, etcd: {{endpoints: ['{scheme}://127.0.0.1:1']{tls}}}")
    };
    let rows = [
        (
            "cluster.tls",
            format!("cluster: {}, {missing}}}", etcd("http", "")),
        ),
        (
            "cluster.etcd.tls",
            format!("cluster: {}}}", etcd("https", &format!(", {missing}"))),
        ),
        (
            "parent.tls",
            format!("parent: {{addresses: ['root:7710'], {missing}}}"),
        ),
    ];
    for (section, yaml) in rows {
        let wrong = file(&format!("{yaml}\n{GOOD}"));
        let path = wrong.path().to_str().unwrap();
        let (code, _, text) = run(&["check", path]);
        let want = format!("{path}: {section}: /no/such/ca.pem: No such file");
        assert!(code == 2 && text.contains(&want), "{text}");
    }
}

#[test]
fn wrong_usage_and_configuration_end_with_2() {
    let bad = file("limits: {}");
    let bad = bad.path().to_str().unwrap();
    let good = file(GOOD);
    let good = good.path().to_str().unwrap();
    let rows: [(&[&str], &str); 6] = [
        (&[], "Usage: tollgate"),
        (&["serve"], "--config <FILE>"),
        (&["check", "/no/such/file"], "/no/such/file: No such file"),
        (
            &["serve", "--config", bad],
            "limits: is a mapping, not a list",
        ),
        (
            &["serve", "--config", good, "--epoch", "x"],
            "invalid digit",
        ),
        (&["serve", "--config", good, "--log", "a=b=c"], "--log"),
    ];
    for (args, want) in rows {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
}

#[test]
fn an_address_in_use_ends_with_1_and_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = file(&GOOD.replacen("127.0.0.1:0", &address.to_string(), 1));
    let (code, _, err) = run(&["serve", "--config", config.path().to_str().unwrap()]);
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains(&format!("cannot listen on {address}")),
        "{err}"
    );
}

#[tokio::test]
async fn serve_says_where_it_listens_and_ends_with_0_on_either_signal() {
    let config = file(GOOD);
    for signal in ["TERM", "INT"] {
        let serve = Serve::start(config.path().to_str().unwrap(), &["--epoch", "7"]);
        assert!(serve.ready.starts_with("tollgate ready grpc=127.0.0.1:"));
        let metrics = Answer::get(serve.address("http"), "/metrics").await;
        assert!(metrics.body.contains("\ntollgate_epoch 7\n"));
        let (code, log) = serve.end(signal);
        assert_eq!(code, 0, "{log}");
        assert!(log.contains("coordinator: stopped"), "{log}");
        assert!(
            !log.contains('\u{1b}'),
            "colours outside of a terminal: {log}"
        );
    }
}

#[tokio::test]
async fn the_epoch_grows_with_each_start() {
    let config = file(GOOD);
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let serve = Serve::start(config.path().to_str().unwrap(), &["--skip-learning"]);
        let metrics = Answer::get(serve.address("http"), "/metrics").await.body;
        let mut lines = metrics.lines();
        let epoch = lines.find_map(|line| line.strip_prefix("tollgate_epoch "));
        epochs.push(epoch.unwrap().parse::<u64>().unwrap());
    }
    assert!(epochs[0] < epochs[1], "{epochs:?}");
}

/// Of a coordinator whose clock was set back Envoys would ignore every answer.
#[tokio::test]
async fn the_epoch_is_above_the_one_in_the_store_whatever_the_clock_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("x.redb");
    let config = file(&format!("{GOOD}\nstore: {{path: '{}'}}", store.display()));
    let config = config.path().to_str().unwrap();
    let ahead = 4_000_000_000_000_u64;
    let epoch = async |args: &[&str]| {
        let serve = Serve::start(config, args);
        let metrics = Answer::get(serve.address("http"), "/metrics").await.body;
        let (code, log) = serve.end("TERM");
        assert_eq!(code, 0, "{log}");
        let mut lines = metrics.lines();
        let epoch = lines.find_map(|line| line.strip_prefix("tollgate_epoch "));
        epoch.unwrap().parse::<u64>().unwrap()
    };
    assert!(epoch(&[]).await < ahead, "the clock of today");
    assert_eq!(epoch(&["--epoch", &ahead.to_string()]).await, ahead);
    assert_eq!(epoch(&[]).await, ahead + 1, "the clock is behind");
    assert_eq!(epoch(&[]).await, ahead + 2, "and still is");
    for term in [7, ahead + 2] {
        let term = term.to_string();
        let (code, _, err) = run(&["serve", "--config", config, "--epoch", &term]);
        assert_eq!(code, 1, "{err}");
        let both = err.contains(&term) && err.contains(&(ahead + 2).to_string());
        assert!(both && err.contains("--epoch"), "{err}");
    }
    // A parent takes 0 for no term at all, and Envoys accept none above the highest.
    for term in ["0", "4398046511104"] {
        let (code, _, err) = run(&["serve", "--config", config, "--epoch", term]);
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains("--epoch") && err.contains("1..=4398046511103"),
            "{err}"
        );
    }
}

#[test]
fn it_does_not_serve_grpc_in_plain_text_beyond_loopback_by_mistake() {
    let open = GOOD.replace("grpc: '127.0.0.1:0'", "grpc: '0.0.0.0:0'");
    assert_ne!(open, GOOD);
    let open = file(&open);
    let path = open.path().to_str().unwrap();
    for args in [
        &["check", path][..],
        &["check", path, "--insecure-admin"],
        &["serve", "--config", path],
        &["serve", "--config", path, "--insecure-admin"],
    ] {
        let (code, _, text) = run(args);
        assert_eq!(code, 2, "{text}");
        let want = "listen.grpc: 0.0.0.0:0 can be reached from other machines, and that needs TLS \
                    (tls.grpc.cert and tls.grpc.key); to serve without, say \
                    `listen.insecure_grpc: true` or --insecure-grpc";
        assert!(text.contains(want), "{text}");
    }
    let (code, _, text) = run(&["check", path, "--insecure-grpc"]);
    assert_eq!(code, 0, "{text}");
    let serve = Serve::start(path, &["--insecure-grpc"]);
    assert!(serve.ready.contains("grpc=0.0.0.0:"), "{}", serve.ready);
}

#[test]
fn it_does_not_listen_beyond_loopback_by_mistake() {
    let open = GOOD.replace("http: '127.0.0.1:0'", "http: '0.0.0.0:0'");
    assert_ne!(open, GOOD);
    let open = file(&open);
    let path = open.path().to_str().unwrap();
    for args in [&["check", path][..], &["serve", "--config", path]] {
        let (code, _, text) = run(args);
        assert_eq!(code, 2, "{text}");
        let want = "listen.http: 0.0.0.0:0 can be reached from other machines, and that needs TLS \
                    and a token (admin.tokens)";
        assert!(text.contains(want), "{text}");
    }
    let (code, _, text) = run(&["check", path, "--insecure-admin"]);
    assert_eq!(code, 0, "{text}");
    let serve = Serve::start(path, &["--insecure-admin"]);
    assert!(serve.ready.contains("http=0.0.0.0:"), "{}", serve.ready);
}

#[test]
fn a_coordinator_that_waits_for_etcd_ends_when_it_is_told_to() {
    // The address has no listener.
    let etcd = "{endpoints: ['http://127.0.0.1:1'], prefix: /test}";
    let config = file(&format!("{GOOD}\ncluster: {{node: a, etcd: {etcd}}}\n"));
    let path = config.path().to_str().unwrap();
    let mut child = tollgate(&["serve", "--config", path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    log.find(|line| {
        line.as_ref()
            .unwrap()
            .contains("store: cannot read the configuration in etcd yet")
    });
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}
