//! A walk through a page: its commands run one after another, as in one terminal, and their output is compared
//! with what the page shows.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};
use tollgate_tests::conditions::{self, INCONCLUSIVE};
use tollgate_tests::envoy_log::complaint;
use tollgate_tests::process::Process;
use tollgate_tests::wait;

use super::checkout::Checkout;
use super::page::Step;

/// Longest time for one command. Most of it is the start of Envoys on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// Longest time until a command that only looks shows what the page shows.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// Begins the line after the output of a command, before its exit code.
const END: &str = "--- exit code";

/// A page that is walked through.
#[derive(Debug)]
pub(crate) struct Walk {
    name: String,
    checkout: Checkout,
    logs: PathBuf,
    shell: Shell,
    /// Programs in the background, in order, while they run; `%1` is the first.
    jobs: Vec<Option<Process>>,
    /// Logs of the Envoys among them, also of those that have ended, with their numbers from zero.
    envoys: Vec<(usize, PathBuf)>,
    /// Commands with their outputs.
    done: Vec<(String, String)>,
    /// Output of this block's commands so far.
    printed: String,
    /// Beginning of the steps that run or ran last.
    began: Instant,
}

/// A shell that runs commands and keeps its variables.
#[derive(Debug)]
struct Shell {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

// === impl Walk ===

impl Walk {
    /// Returns the name of its example.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Begins a walk called `name` in `checkout`, with the logs of what it starts in `logs`.
    ///
    /// # Errors
    /// When there is no shell.
    pub(crate) fn begin(name: &str, checkout: Checkout, logs: PathBuf) -> Result<Self> {
        let shell = Shell::start(bash(&checkout)?)?;
        Ok(Self {
            name: name.to_owned(),
            checkout,
            logs,
            shell,
            jobs: Vec::new(),
            envoys: Vec::new(),
            done: Vec::new(),
            printed: String::new(),
            began: Instant::now(),
        })
    }

    /// Runs `steps`, and compares what they print with what the page shows.
    ///
    /// # Errors
    /// When a command fails or prints something else, or when something in the background has ended;
    /// inconclusive if the machine was too busy.
    pub(crate) async fn run(&mut self, steps: &[Step]) -> Result<()> {
        self.began = Instant::now();
        for step in steps {
            let ran = self.step(step).await;
            ran.with_context(|| format!("{}: {}", self.name, step.command))
                .or_else(|error| self.judge(error))?;
        }
        Ok(())
    }

    /// Checks what the example claims, in the outputs of the steps that ran last.
    ///
    /// # Errors
    /// When it does not hold; inconclusive if the machine was too busy.
    pub(crate) fn check(&self, claim: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        claim(self)
            .with_context(|| format!("the claim of {}", self.name))
            .or_else(|error| self.judge(error))
    }

    /// Marks an error as inconclusive if the machine was too busy while the last steps ran.
    fn judge(&self, error: Error) -> Result<()> {
        let lost = conditions::lost_in(self.began..Instant::now());
        Err(if lost.is_fair() {
            error
        } else {
            error.context(format!("{INCONCLUSIVE} {lost}"))
        })
    }

    /// The output of the command that contains `part`; of several the last.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn output(&self, part: &str) -> Result<&str> {
        let all = self.done.iter().rev();
        let mut with = all.filter(|(command, _)| command.contains(part));
        let (_, output) = with
            .next()
            .with_context(|| format!("{}: no command with {part}", self.name))?;
        Ok(output)
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        let command = step.command.as_str();
        if step.first {
            self.printed.clear();
        }
        if let Some(command) = command.strip_suffix('&') {
            return self.start(command.trim()).await;
        }
        if let Some(jobs) = command.strip_prefix("kill ") {
            return self.end(jobs).await;
        }
        for job in self.jobs.iter_mut().flatten() {
            job.check_running()?;
        }
        let (shell, printed) = (&mut self.shell, &self.printed);
        let mut run = async || {
            let output = shell.run(command).await?;
            step.check(&format!("{printed}{output}"))?;
            Ok(output)
        };
        let output = if is_look(command) {
            wait::until("the output that the page shows", LOOK_LIMIT, run).await?
        } else {
            run().await?
        };
        self.printed.push_str(&output);
        self.done.push((command.to_owned(), output));
        Ok(())
    }

    /// Starts a command in the background. Its configuration has to be good by itself.
    async fn start(&mut self, command: &str) -> Result<()> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["tollgate", "serve", "--config", file, ..] => {
                let check = self.shell.run(&format!("tollgate check {file}")).await?;
                ensure!(!check.contains("warning"), "{check}");
            }
            ["envoy", "--config-path", file, ..] => {
                let validate = format!("envoy --mode validate --config-path {file}");
                self.shell.run(&validate).await?;
            }
            _ => {}
        }
        let program = words.first().context("a program")?;
        let log = format!("{}-{}-{program}", self.name, self.jobs.len() + 1);
        if *program == "envoy" {
            let file = self.logs.join(format!("{log}.log"));
            self.envoys.push((self.jobs.len(), file));
        }
        let mut bash = bash(&self.checkout)?;
        bash.args(["-c", &format!("exec {command}")]);
        let job = Process::start(&self.logs, &log, &mut bash)?;
        self.jobs.push(Some(job));
        Ok(())
    }

    /// Ends jobs that are given as `%1 %2`.
    async fn end(&mut self, jobs: &str) -> Result<()> {
        for number in jobs.split_whitespace() {
            let number: usize = number.trim_start_matches('%').parse()?;
            let at = number.checked_sub(1).context("a job")?;
            let job = self.jobs.get_mut(at).and_then(Option::take);
            end(job.context("a job")?).await?;
        }
        Ok(())
    }

    /// Ends all Envoys, and checks their logs from start to end.
    ///
    /// # Errors
    /// As [`Walk::check_logs`], and when an Envoy does not end.
    pub(crate) async fn end_envoys(&mut self) -> Result<()> {
        for (at, _) in &self.envoys {
            if let Some(job) = self.jobs.get_mut(*at).and_then(Option::take) {
                end(job).await?;
            }
        }
        self.check_logs()
    }

    /// Checks that the logs of all Envoys have neither warnings nor lines of the filter so far.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn check_logs(&self) -> Result<()> {
        for (_, log) in &self.envoys {
            let log = fs::read_to_string(log)?;
            if let Some(line) = complaint(&log) {
                bail!("the log of an Envoy of {} has {line}", self.name);
            }
        }
        Ok(())
    }
}

// === impl Shell ===

impl Shell {
    fn start(bash: Command) -> Result<Self> {
        let mut bash = tokio::process::Command::from(bash);
        let mut process = bash
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting bash")?;
        let input = process.stdin.take().context("its input")?;
        let output = process.stdout.take().context("its output")?;
        Ok(Self {
            input,
            output: BufReader::new(output).lines(),
            _process: process,
        })
    }

    /// Runs a command, and returns what it prints.
    ///
    /// # Errors
    /// When it fails or does not end in time.
    async fn run(&mut self, command: &str) -> Result<String> {
        let script = format!("{{ {command}\n}} </dev/null 2>&1; printf '\\n{END} %d\\n' $?\n");
        self.input.write_all(script.as_bytes()).await?;
        let mut output = String::new();
        loop {
            let line = timeout(COMMAND_LIMIT, self.output.next_line()).await;
            let line = line.with_context(|| format!("`{command}` does not end:\n{output}"))??;
            let line = line.context("the shell has ended")?;
            if let Some(code) = line.strip_prefix(END) {
                match code.trim() {
                    "0" => return Ok(output),
                    code => bail!("`{command}` exits with {code}:\n{output}"),
                }
            }
            output.push_str(&line);
            output.push('\n');
        }
    }
}

/// Asks a job to end, and waits until it has.
async fn end(mut job: Process) -> Result<()> {
    job.terminate()?;
    wait::until("the end of a job", COMMAND_LIMIT, async || {
        ensure!(job.has_ended()?, "it still runs");
        Ok(())
    })
    .await
}

/// A shell in `checkout`, in which its programs are found.
fn bash(checkout: &Checkout) -> Result<Command> {
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc"])
        .current_dir(checkout.root())
        .env("PATH", checkout.path()?)
        .env("TOLLGATE_SERVER", checkout.server());
    Ok(bash)
}

/// Whether a command only looks, so that it may run again until the coordinator has heard from Envoy.
fn is_look(command: &str) -> bool {
    ["tollgate top", "tollgate get"]
        .iter()
        .any(|look| command.contains(look))
}
