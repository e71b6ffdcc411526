//! Paths of the programs and filters under test, with a clear error for a missing one.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// The build directory: `CARGO_TARGET_DIR`, else `target` in the workspace.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// The Envoy to test with: `ENVOY_BIN`, else the one that `just setup` installs, else the one on
/// `PATH`.
///
/// # Errors
/// When none of the three can be started: a missing Envoy fails a test, it does not skip it.
pub fn envoy() -> Result<PathBuf> {
    if let Some(binary) = env::var_os("ENVOY_BIN") {
        let binary = PathBuf::from(binary);
        ensure!(
            starts(&binary),
            "ENVOY_BIN is {}, which does not start",
            binary.display()
        );
        return Ok(binary);
    }
    let installed = workspace().join(".tools/envoy/envoy/_bin/envoy");
    [installed, PathBuf::from("envoy")]
        .into_iter()
        .find(|binary| starts(binary))
        .context("no Envoy: run `just setup`, set ENVOY_BIN, or put envoy on the PATH")
}

/// The etcd to test with: `ETCD_BIN`, else the one that `just setup` unpacks, else the one on `PATH`.
///
/// # Errors
/// When none of the three can be started: a missing etcd fails a test, it does not skip it.
pub fn etcd() -> Result<PathBuf> {
    if let Some(binary) = env::var_os("ETCD_BIN") {
        let binary = PathBuf::from(binary);
        ensure!(
            starts(&binary),
            "ETCD_BIN is {}, which does not start",
            binary.display()
        );
        return Ok(binary);
    }
    let unpacked = workspace().join(".tools/etcd/usr/bin/etcd");
    [unpacked, PathBuf::from("etcd")]
        .into_iter()
        .find(|binary| starts(binary))
        .context("no etcd: run `just setup`, set ETCD_BIN, or put etcd on the PATH")
}

/// promtool: the one that `just setup` unpacks, else the one on `PATH`; `None` without either.
pub fn promtool() -> Option<PathBuf> {
    let unpacked = workspace().join(".tools/bin/promtool");
    [unpacked, PathBuf::from("promtool")]
        .into_iter()
        .find(|binary| starts(binary))
}

/// Debian's libfaketime: the one that `just setup` unpacks, else the installed one; `None` without
/// either.
pub fn faketime() -> Option<PathBuf> {
    let unpacked = workspace().join(".tools/faketime/usr/lib");
    let folders = [unpacked, PathBuf::from("/usr/lib")];
    let targets = folders.into_iter().filter_map(|lib| lib.read_dir().ok());
    let targets = targets.flatten().flatten();
    let mut files = targets.map(|target| target.path().join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.is_file())
}

/// The coordinator's binary: `TOLLGATE_BIN`, else the one beside the running program's profile.
///
/// # Errors
/// When it has not been built.
pub fn coordinator() -> Result<PathBuf> {
    if let Some(binary) = env::var_os("TOLLGATE_BIN") {
        return existing(PathBuf::from(binary), "TOLLGATE_BIN");
    }
    let running = env::current_exe().context("the path of this program")?;
    let beside = running
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("tollgate"))
        .find(|binary| binary.is_file());
    existing(
        beside.unwrap_or_else(|| target_dir().join("debug/tollgate")),
        "the coordinator",
    )
}

/// An example of a crate, beside the running test's profile.
///
/// # Errors
/// When it has not been built.
pub fn example(name: &str) -> Result<PathBuf> {
    let running = env::current_exe().context("the path of this program")?;
    let profile = running.ancestors().nth(2).context("a target directory")?;
    let example = profile.join("examples").join(name);
    ensure!(
        example.is_file(),
        "there is no {}: run `cargo build --examples` for its crate",
        example.display()
    );
    Ok(example)
}

/// The filter as users load it.
///
/// # Errors
/// When it has not been built.
pub fn filter() -> Result<PathBuf> {
    existing(target_dir().join("tollgate_filter.wasm"), "the filter")
}

/// The filter as a dynamic module: `TOLLGATE_MODULE`, else the one that `just build` made.
///
/// # Errors
/// When it has not been built.
pub fn native_filter() -> Result<PathBuf> {
    if let Some(library) = env::var_os("TOLLGATE_MODULE") {
        return existing(PathBuf::from(library), "TOLLGATE_MODULE");
    }
    existing(target_dir().join("libtollgate.so"), "the dynamic module")
}

/// The benchmark's dynamic module without any work.
///
/// # Errors
/// When it has not been built.
pub fn baseline_module() -> Result<PathBuf> {
    let file = target_dir().join("module/libbench_empty_module.so");
    existing(file, "the baseline module")
}

/// A benchmark's baseline filter, by the name of its crate's library.
///
/// # Errors
/// When it has not been built.
pub fn baseline_filter(name: &str) -> Result<PathBuf> {
    let file = target_dir()
        .join("wasm32-wasip1/filter")
        .join(name)
        .with_extension("wasm");
    existing(file, "the baseline filter")
}

fn existing(file: PathBuf, what: &str) -> Result<PathBuf> {
    ensure!(
        file.is_file(),
        "{what} is not at {}: run `just build`",
        file.display()
    );
    Ok(file)
}

fn starts(binary: &Path) -> bool {
    Command::new(binary)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
