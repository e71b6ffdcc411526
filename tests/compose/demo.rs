//! A running demo.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tollgate_tests::artifact::workspace;
use tollgate_tests::envoy_log::complaint;

/// A running demo. Dropping it removes its containers and volumes.
#[derive(Debug)]
pub(crate) struct Demo {
    /// A copy of its folder, so that a test may change files.
    folder: PathBuf,
    _copy: TempDir,
}

// === impl Demo ===

impl Demo {
    /// Starts all services of the demo called `name`; those in `optional` only if their images exist.
    ///
    /// # Errors
    /// When Docker cannot start it.
    pub(crate) fn start(name: &str, optional: &[&str]) -> Result<Self> {
        let copy = TempDir::with_prefix_in("tollgate-", workspace().join("target"))?;
        let from = workspace().join("envoy");
        ensure!(
            Command::new("cp")
                .arg("-r")
                .arg(&from)
                .arg(copy.path())
                .status()?
                .success(),
            "cannot copy {}",
            from.display()
        );
        open_to_all(copy.path())?;
        let demo = Self {
            folder: copy.path().join("envoy/demo").join(name),
            _copy: copy,
        };
        let services = demo.run(&["config", "--services"])?;
        let mut up = vec!["up", "-d"];
        for service in services.lines() {
            if optional.contains(&service) && !demo.has_image(service)? {
                eprintln!("SKIPPED: {name} runs without {service}: its image is missing here");
            } else {
                up.push(service);
            }
        }
        demo.run(&up)?;
        Ok(demo)
    }

    /// Runs a Compose command on the demo, and returns its output.
    ///
    /// # Errors
    /// When the command fails, with its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = compose()?
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()?;
        checked_output(arguments, &output)
    }

    /// Replaces the first `old` in one of the demo's files by `new`, as an editor would.
    ///
    /// # Errors
    /// When the file cannot be written or has no `old`.
    pub(crate) fn replace(&self, file: &str, old: &str, new: &str) -> Result<()> {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(old), "no {old:?} in {file}");
        fs::write(&path, text.replacen(old, new, 1))?;
        Ok(())
    }

    /// Checks that the logs of its Envoys have no warnings so far.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn check_envoys(&self) -> Result<()> {
        let services = self.run(&["config", "--services"])?;
        let services: Vec<_> = services
            .lines()
            .filter(|name| name.starts_with("envoy"))
            .collect();
        ensure!(!services.is_empty(), "there is no Envoy");
        for service in services {
            let log = self.run(&["logs", "--no-color", "--no-log-prefix", service])?;
            // The first line is Compose's own.
            let own = log
                .split_once('\n')
                .filter(|(first, _)| first.starts_with("Attaching to "));
            let log = own.map_or(log.as_str(), |(_, rest)| rest);
            ensure!(!log.is_empty(), "{service} has logged nothing");
            let line = complaint(log);
            ensure!(line.is_none(), "the log of {service} has {line:?}");
        }
        Ok(())
    }

    fn has_image(&self, service: &str) -> Result<bool> {
        let text = fs::read_to_string(self.folder.join("docker-compose.yml"))?;
        let image = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("image: "))
            .find(|image| image.contains(service))
            .with_context(|| format!("no image of {service}"))?;
        let inspect = Command::new("docker")
            .args(["image", "inspect", image])
            .output()?;
        Ok(inspect.status.success())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The test harness shows it for failed tests only.
        let logs = self.run(&["logs", "--no-color", "--tail", "20"]);
        eprintln!("{}", logs.unwrap_or_else(|error| error.to_string()));
        if let Err(error) = self.run(&["down", "--volumes", "--timeout", "2"]) {
            eprintln!("{error:#}");
        }
    }
}

// === free functions ===

/// Compose as Docker's plug-in, else as the separate program.
fn compose() -> Result<Command> {
    let plugin = Command::new("docker")
        .args(["compose", "version"])
        .output()
        .context("docker is not installed")?;
    if plugin.status.success() {
        let mut command = Command::new("docker");
        command.arg("compose");
        return Ok(command);
    }
    Ok(Command::new("docker-compose"))
}

/// Returns the standard output of a successful command.
fn checked_output(arguments: &[&str], output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "compose {}: {}\n{text}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Lets the containers' users read the mounted files; a temporary folder is private by default.
fn open_to_all(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
