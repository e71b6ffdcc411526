//! A folder that looks like a built checkout of this repository, with ports of its own, so that several examples
//! and an Envoy of the developer's run side by side.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use tollgate_tests::envoy_log::FILTER_LEVELS;
use tollgate_tests::{artifact, filter, ports};

/// Ports in the documentation: coordinator (gRPC, HTTP), upstream, and Envoy (admin, listener).
const PORTS: [&str; 5] = ["7710", "7711", "8080", "9901", "10000"];
/// The folder in which the documentation looks for Envoy.
const ENVOY: &str = ".tools/envoy/envoy/_bin";

/// The dynamic module in a built checkout.
const MODULE: &str = "target/libtollgate.so";

/// A folder with copies of documented files.
#[derive(Clone, Debug)]
pub(crate) struct Checkout {
    root: PathBuf,
    ports: [u16; 5],
}

// === impl Checkout ===

impl Checkout {
    /// Makes the folder `root` with copies of `paths`, files and folders of this repository, and links to what a
    /// build makes.
    ///
    /// # Errors
    /// When a file is missing or cannot be written, or no port is free.
    pub(crate) fn make(root: PathBuf, paths: &[&str]) -> Result<Self> {
        let mut free = [0; 5];
        for port in &mut free {
            *port = ports::free()?;
        }
        let checkout = Self { root, ports: free };
        for path in paths {
            checkout.copy(path)?;
        }
        checkout.link("target/tollgate_filter.wasm", &artifact::filter()?)?;
        checkout.link(MODULE, &artifact::native_filter()?)?;
        checkout.link("target/demo/tollgate", &artifact::coordinator()?)?;
        // Envoys beside each other need the first, or an id of their own; the second shows all that the filter says.
        let arguments = format!("--disable-hot-restart --component-log-level {FILTER_LEVELS}");
        let envoy = artifact::envoy()?;
        let envoy = format!("exec '{}' {arguments} \"$@\"", envoy.display());
        checkout.script(&format!("{ENVOY}/envoy"), &envoy)?;
        // `just demo` builds what is linked here, and has tests of its own.
        checkout.script(".ci/just", "echo \"built: $*\"")?;
        Ok(checkout)
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// `PATH` after the documentation's `export PATH=...`.
    ///
    /// # Errors
    /// When there is no `PATH`.
    pub(crate) fn path(&self) -> Result<String> {
        let path = std::env::var("PATH").context("PATH")?;
        let root = self.root.display();
        Ok(format!("{root}/target/demo:{root}/{ENVOY}:{path}"))
    }

    /// URL of the coordinator's HTTP port.
    pub(crate) fn server(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }

    /// Reads a file of this repository, with the ports of this folder instead of the documented ones.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let text = fs::read_to_string(artifact::workspace().join(path))
            .with_context(|| format!("reading {path}"))?;
        Ok(self.with_own_ports(&text))
    }

    /// Replaces the wasm filters of an Envoy's configuration by the dynamic module. False if there are none.
    ///
    /// # Errors
    /// When the file is not such a configuration.
    pub(crate) fn load_module(&self, path: &str) -> Result<bool> {
        let mut config: Value = serde_saphyr::from_str(&self.read(path)?)?;
        let replaced = replace_filters(&mut config)?;
        fs::write(self.place(path)?, config.to_string())?;
        Ok(replaced)
    }

    fn copy(&self, path: &str) -> Result<()> {
        let from = artifact::workspace().join(path);
        if from.is_dir() {
            for entry in fs::read_dir(&from)? {
                let name = entry?.file_name();
                self.copy(&format!("{path}/{}", name.to_string_lossy()))?;
            }
            return Ok(());
        }
        if path.ends_with(".redb") {
            // Left by somebody who ran it there.
            return Ok(());
        }
        let mode = fs::metadata(&from)
            .with_context(|| format!("reading {path}"))?
            .permissions();
        let to = self.place(path)?;
        fs::write(&to, self.read(path)?)?;
        Ok(fs::set_permissions(to, mode)?)
    }

    fn link(&self, path: &str, to: &Path) -> Result<()> {
        Ok(symlink(to, self.place(path)?)?)
    }

    fn script(&self, path: &str, line: &str) -> Result<()> {
        let file = self.place(path)?;
        fs::write(&file, format!("#!/bin/sh\n{line}\n"))?;
        Ok(fs::set_permissions(
            file,
            fs::Permissions::from_mode(0o755),
        )?)
    }

    /// Makes the folder of `path`, and returns its place.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let place = self.root.join(path);
        fs::create_dir_all(place.parent().context("a folder")?)?;
        Ok(place)
    }

    /// Replaces the documented ports, where they stand as whole numbers.
    fn with_own_ports(&self, text: &str) -> String {
        let mut replaced = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, number) = rest.split_at(start);
            let end = number.find(|c: char| !c.is_ascii_digit());
            let (number, after) = number.split_at(end.unwrap_or(number.len()));
            replaced.push_str(before);
            match PORTS.iter().position(|port| *port == number) {
                Some(port) => replaced.push_str(&self.ports[port].to_string()),
                None => replaced.push_str(number),
            }
            rest = after;
        }
        replaced + rest
    }
}

/// Replaces the wasm filters in a part of a configuration; false if there are none.
fn replace_filters(config: &mut Value) -> Result<bool> {
    let text = |at: &str| config.pointer(at).and_then(Value::as_str);
    if text("/typed_config/@type").is_some_and(|kind| kind.ends_with(".wasm.v3.Wasm")) {
        let plugin = text("/typed_config/config/configuration/value");
        let plugin = serde_json::from_str(plugin.context("a plugin's configuration")?)?;
        *config = filter::tollgate_from(Path::new(MODULE), &plugin);
        return Ok(true);
    }
    let parts: Vec<&mut Value> = match config {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    let mut replaced = false;
    for part in parts {
        replaced |= replace_filters(part)?;
    }
    Ok(replaced)
}

#[test]
fn documented_ports_are_replaced_where_they_are_whole_numbers() {
    let checkout = Checkout {
        root: PathBuf::new(),
        ports: [1, 2, 3, 4, 5],
    };
    let text = "listen: {grpc: 127.0.0.1:7710}, 8080, 77110, 100000, port_value: 10000";
    let own = "listen: {grpc: 127.0.0.1:1}, 3, 77110, 100000, port_value: 5";
    assert_eq!(checkout.with_own_ports(text), own);
}
