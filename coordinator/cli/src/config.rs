//! `tollgate config`: the configuration that the nodes of a cluster share.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use tollgate_config::shared_config::{self, SharedConfigError, TEXT_LEN_MAX};
use tollgate_config::{Config, Flags};

use crate::check::load;
use crate::failure::Failure;
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate config put limits.yaml --config tollgate.yaml
      Checks the file, and puts it in force at all nodes at once.
  tollgate config get --config tollgate.yaml > limits.yaml
      The configuration in force.";

/// Read or replace the configuration that the nodes of a cluster share: limits, groups, attach, doorman, rls
/// and rlqs.
///
/// For clusters with `shared_config: true`. Speaks to etcd, as a node's configuration says, so it
/// needs no coordinator.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Shared {
    #[command(subcommand)]
    action: Action,

    /// The configuration of a node, which says where etcd is.
    #[arg(long, value_name = "FILE", global = true)]
    #[arg(default_value = "tollgate.yaml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Replace it, unless it has errors.
    Put {
        /// YAML with the sections limits, groups, attach, doorman, rls and rlqs.
        file: PathBuf,
    },
    /// Print it.
    Get,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Runtime::new().map_err(Failure::runtime)?;
        let flags = Flags {
            insecure_admin: true,
            insecure_grpc: true,
            ..Flags::default()
        };
        let node = load(&self.config, flags)?;
        match self.action {
            Action::Put { file } => {
                let put = runtime.block_on(put(&node, &file));
                put.map_err(|error| failure(&file, error))?;
                let line = format!("{}: good, and in etcd now", file.display());
                print::lines(&line)
            }
            Action::Get => {
                let text = runtime.block_on(shared_config::get(&node));
                let text = text.map_err(|error| failure(&self.config, error))?;
                let missing = || Failure::Missing(anyhow!("there is none in etcd yet"));
                let mut out = std::io::stdout().lock();
                let written = out.write_all(&text.ok_or_else(missing)?);
                written.and_then(|()| out.flush()).map_err(Failure::runtime)
            }
        }
    }
}

// === free functions ===

async fn put(node: &Config, file: &Path) -> Result<(), anyhow::Error> {
    let mut text = Vec::new();
    let most = TEXT_LEN_MAX as u64 + 1;
    File::open(file)?.take(most).read_to_end(&mut text)?;
    Ok(shared_config::put(node, &text).await?)
}

fn failure(file: &Path, error: impl Into<anyhow::Error>) -> Failure {
    let error = error.into();
    let kind = match error.downcast_ref::<SharedConfigError>() {
        Some(SharedConfigError::Store(_)) => Failure::Runtime,
        Some(SharedConfigError::Refused(_)) => Failure::Conflict,
        _ => Failure::Usage,
    };
    kind(error.context(file.display().to_string()))
}
