//! `tollgate token`: a new token for the admin API.

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde_json::json;
use tollgate_config::tokens::{NewToken, Role};

use crate::failure::Failure;
use crate::print;

const EXAMPLES: &str = "\
Examples:
  tollgate token --name ci --role admin
      The first line is the token. The second goes into the configuration under admin.tokens; it
      has only the token's hash, so a reader of the file cannot use it.
  tollgate token --name grafana --json | jq -r .token > grafana.token
      For scripts.";

/// Make a token for the admin API, and the line that makes a coordinator accept it.
///
/// Asks no coordinator, and keeps no copy of the token.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Token {
    /// The owner, for the coordinator's log.
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: String,

    /// The role.
    #[arg(long, value_enum, default_value_t)]
    role: TokenRole,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum TokenRole {
    /// Reading.
    #[default]
    Viewer,
    /// Reading and writing.
    Admin,
}

// === impl Token ===

impl Token {
    pub(crate) fn run(self, as_json: bool) -> Result<(), Failure> {
        let mut random = [0; 32];
        let filled = getrandom::fill(&mut random);
        filled.map_err(|error| Failure::runtime(anyhow!("no randomness: {error}")))?;
        let NewToken { text, hash } = NewToken::from_random(random);
        let role = match self.role {
            TokenRole::Viewer => Role::Viewer.name(),
            TokenRole::Admin => Role::Admin.name(),
        };
        let name = self.name;
        if as_json {
            let hash = hash.to_string();
            return print::json(&json!({
                "token": text, "name": name, "role": role, "sha256": hash,
            }));
        }
        print::lines(&format!(
            "{text}\n- {{name: \"{name}\", role: {role}, sha256: \"{hash}\"}}"
        ))
    }
}

// === free functions ===

/// A name that YAML takes as it stands.
fn name(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if starts && text.len() <= 64 && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Err("is not a letter and at most 63 more letters, digits, and `.`, `_`, `-` or `@`".to_owned())
}
