//! Address and credentials of the coordinator that a command talks to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use crate::client::{Client, Options};
use crate::failure::Failure;

const HEADING: &str = "Which coordinator (for commands that talk to one)";

/// The largest file with a token, in bytes.
const TOKEN_FILE_LEN_MAX: u64 = 4096;

/// The options of all commands that talk to a coordinator.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The coordinator's admin API.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOLLGATE_SERVER",
        default_value = "http://127.0.0.1:7711",
        help_heading = HEADING
    )]
    server: String,

    /// The token that lets you in. Others on this machine can see it; better say --token-file.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "TOLLGATE_TOKEN",
        hide_env_values = true,
        help_heading = HEADING
    )]
    token: Option<String>,

    /// A file that has the token in it; wins over --token.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TOLLGATE_TOKEN_FILE",
        help_heading = HEADING
    )]
    token_file: Option<PathBuf>,

    /// The authority of an https:// server's certificate, PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TOLLGATE_CA",
        help_heading = HEADING
    )]
    ca: Option<PathBuf>,

    /// Your own certificate, PEM, where the server asks for one.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TOLLGATE_CERT",
        requires = "key",
        help_heading = HEADING
    )]
    cert: Option<PathBuf>,

    /// The private key of --cert, PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TOLLGATE_KEY",
        requires = "cert",
        help_heading = HEADING
    )]
    key: Option<PathBuf>,

    /// Print JSON, as the API answers it.
    #[arg(long, global = true, help_heading = HEADING)]
    pub(crate) json: bool,
}

// === impl Connection ===

impl Connection {
    /// A client as the options say.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let from_file = self.token_file.as_deref().map(token).transpose();
        let token = from_file.map_err(Failure::usage)?;
        Client::new(Options {
            server: &self.server,
            token: token.as_deref().or(self.token.as_deref()),
            ca: self.ca.as_deref(),
            identity: self.cert.as_deref().zip(self.key.as_deref()),
        })
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
