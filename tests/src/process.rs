//! A child process with a log file, ended when it is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::conditions;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 40;

/// A running child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

// === impl Process ===

impl Process {
    /// Starts `command` with its output in `<dir>/<name>.log`.
    ///
    /// # Errors
    /// When the log cannot be written or the program cannot be started.
    pub fn start(dir: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        conditions::watch_child(child.id(), name);
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Log of the process so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Checks that the process still runs.
    ///
    /// # Errors
    /// When the process has ended, with the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, tail(&self.log)),
        }
    }

    /// Whether the process has ended.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Checks that the process has ended, and with success.
    ///
    /// # Errors
    /// When it still runs, or has failed.
    pub fn check_succeeded(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, tail(&self.log)),
            None => bail!("{} still runs", self.name),
        }
    }

    /// Stops the process (SIGSTOP), as on a machine that hangs; it keeps its connections.
    ///
    /// # Errors
    /// When the process has gone.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen process go on.
    ///
    /// # Errors
    /// When the process has gone.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to shut down (SIGTERM).
    ///
    /// # Errors
    /// When the process has gone.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Kills the process without a chance to clean up, and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        conditions::forget_child(self.child.id());
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// CPU time that the process has used so far, as [`cpu_of`] has it.
    ///
    /// # Errors
    /// When the process has gone, or the kernel keeps no such account.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(self.child.id())
    }

    /// Anonymous memory (not of files) in use by the process, in bytes.
    ///
    /// # Errors
    /// When the process has gone.
    pub fn memory_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kilobytes
            .context("no RssAnon in /proc/<pid>/status")?
            .trim()
            .parse::<u64>()?
            * 1024)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process id")?, signal)
            .with_context(|| format!("signalling {}", self.name))
    }
}

/// Kills the process; its log stays.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// CPU time, user and system together, that the live threads of a process have used so far.
///
/// From the scheduler's account, in nanoseconds; the clock ticks of `/proc/<pid>/stat` are too coarse to
/// compare a few microseconds per request over slices of a second.
///
/// # Errors
/// When there is no such process, or the kernel keeps no such account.
pub fn cpu_of(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let account = fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos = account
            .split_whitespace()
            .next()
            .context("an empty schedstat")?;
        sum += Duration::from_nanos(nanos.parse()?);
    }
    Ok(sum)
}

/// The last lines of every log in `dir`.
pub fn log_tails(dir: &Path) -> String {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    let tails = logs
        .iter()
        .map(|log| format!("--- end of {}\n{}\n", log.display(), tail(log)));
    tails.collect()
}

fn read(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail(log: &Path) -> String {
    let log = read(log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
