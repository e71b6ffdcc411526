//! Address and credentials of the coordinator that a command talks to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

/// The largest file with a token, in bytes.
const TOKEN_FILE_LEN_MAX: u64 = 4096;

/// The options of all commands that talk to a coordinator.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which coordinator (for commands that talk to one)")]
pub(crate) struct Connection {
    /// The coordinator's admin API.
    #[arg(long, global = true, value_name = "URL", env = "TOLLGATE_SERVER")]
    #[arg(default_value = "http://127.0.0.1:7711")]
    pub(crate) server: String,

    /// The token that lets you in. Others on this machine can see it; better say --token-file.
    #[arg(long, global = true, value_name = "TOKEN", env = "TOLLGATE_TOKEN")]
    #[arg(hide_env_values = true)]
    token: Option<String>,

    /// A file that has the token in it; wins over --token.
    #[arg(long, global = true, value_name = "FILE", env = "TOLLGATE_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// The authority of an https:// server's certificate, PEM.
    #[arg(long, global = true, value_name = "FILE", env = "TOLLGATE_CA")]
    pub(crate) ca: Option<PathBuf>,

    /// Your own certificate, PEM, where the server asks for one.
    #[arg(long, global = true, value_name = "FILE", env = "TOLLGATE_CERT")]
    #[arg(requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of --cert, PEM.
    #[arg(long, global = true, value_name = "FILE", env = "TOLLGATE_KEY")]
    #[arg(requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Print JSON, as the API answers it.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

// === impl Connection ===

impl Connection {
    /// The token, if there is one.
    ///
    /// # Errors
    /// If the file for it cannot be read.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.token_file {
            Some(file) => token(file).map(Some),
            None => Ok(self.token.clone()),
        }
    }
}

// === free functions ===

/// The token in `file`, without the space around it.
fn token(file: &Path) -> anyhow::Result<String> {
    let name = || format!("--token-file: {}", file.display());
    let len = std::fs::metadata(file).with_context(name)?.len();
    anyhow::ensure!(
        len <= TOKEN_FILE_LEN_MAX,
        "{}: is too long for a token",
        name()
    );
    let text = std::fs::read_to_string(file).with_context(name)?;
    Ok(text.trim().to_owned())
}
