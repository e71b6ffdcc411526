//! A real etcd: one member or several, on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::Process;
use crate::{artifact, ports, wait};

/// Longest time for a start, with an election among the members.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Line in a member's log when it serves.
const READY: &str = "ready to serve client requests";

/// A running etcd; its data stays in its folder.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    dir: PathBuf,
    scheme: &'static str,
    /// Further flags of every member.
    flags: Vec<String>,
}

/// One member.
#[derive(Debug)]
struct Member {
    client_port: u16,
    peer_port: u16,
    starts: u32,
    process: Option<Process>,
}

// === impl Etcd ===

impl Etcd {
    /// Starts `members` members in `dir`, which speak plain text.
    ///
    /// # Errors
    /// When etcd is missing, or ends or does not serve in time.
    pub async fn start(dir: &Path, members: usize) -> Result<Self> {
        Self::start_with(dir, members, "http", &[]).await
    }

    /// Starts `members` members in `dir` whose clients use `scheme`, with further `flags`.
    ///
    /// # Errors
    /// When etcd is missing, or ends or does not serve in time.
    pub async fn start_with(
        dir: &Path,
        members: usize,
        scheme: &'static str,
        flags: &[String],
    ) -> Result<Self> {
        let members = (0..members).map(|_| {
            Ok(Member {
                client_port: ports::free()?,
                peer_port: ports::free()?,
                starts: 0,
                process: None,
            })
        });
        let mut etcd = Self {
            members: members.collect::<Result<_>>()?,
            dir: dir.to_owned(),
            scheme,
            flags: flags.to_vec(),
        };
        for index in 0..etcd.members.len() {
            etcd.spawn(index)?;
        }
        for index in 0..etcd.members.len() {
            etcd.ready(index).await?;
        }
        Ok(etcd)
    }

    /// The URLs of all members.
    pub fn endpoints(&self) -> Vec<String> {
        let url = |member: &Member| format!("{}://127.0.0.1:{}", self.scheme, member.client_port);
        self.members.iter().map(url).collect()
    }

    /// Client addresses of the members.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |member: &Member| SocketAddr::from(([127, 0, 0, 1], member.client_port));
        self.members.iter().map(address).collect()
    }

    /// The URLs of all members as a list in YAML.
    pub fn endpoints_yaml(&self) -> String {
        format!("['{}']", self.endpoints().join("', '"))
    }

    /// Kills member `index`, which keeps its data.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let process = self.members[index].process.take();
        process.context("a running member")?.kill()
    }

    /// Starts member `index` again, with its data, and waits until it serves.
    ///
    /// # Errors
    /// When it runs already, or ends or does not serve in time.
    pub async fn restart(&mut self, index: usize) -> Result<()> {
        ensure!(
            self.members[index].process.is_none(),
            "the member is running"
        );
        self.spawn(index)?;
        self.ready(index).await
    }

    /// Stops member `index` (SIGSTOP); it keeps its connections.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&self, index: usize) -> Result<()> {
        self.running(index)?.freeze()
    }

    /// Lets a frozen member go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&self, index: usize) -> Result<()> {
        self.running(index)?.thaw()
    }

    fn running(&self, index: usize) -> Result<&Process> {
        self.members[index]
            .process
            .as_ref()
            .context("a running member")
    }

    fn spawn(&mut self, index: usize) -> Result<()> {
        let peer = |member: &Member| format!("http://127.0.0.1:{}", member.peer_port);
        let all = self.members.iter().enumerate();
        let all = all.map(|(index, member)| format!("m{index}={}", peer(member)));
        let all = all.collect::<Vec<_>>().join(",");
        let member = &self.members[index];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client_port);
        let mut command = Command::new(artifact::etcd()?);
        command
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.dir.join(format!("etcd-{index}")))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args(["--listen-peer-urls", &peer(member)])
            .args(["--initial-advertise-peer-urls", &peer(member)])
            .args(["--initial-cluster", &all])
            .args(&self.flags);
        let name = format!("etcd-{index}-{}", member.starts);
        let process = Process::start(&self.dir, &name, &mut command)?;
        let member = &mut self.members[index];
        member.starts += 1;
        member.process = Some(process);
        Ok(())
    }

    async fn ready(&mut self, index: usize) -> Result<()> {
        let process = self.members[index].process.as_mut();
        let process = process.context("a running member")?;
        wait::until("etcd to serve", START_LIMIT, async || {
            process.check_running()?;
            ensure!(
                process.log().contains(READY),
                "etcd has not logged that it is ready"
            );
            Ok(())
        })
        .await
    }
}
