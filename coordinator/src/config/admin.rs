//! The section `admin`: who may use the admin API, and from where.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde::Deserialize;
use serde_saphyr::Location;

use super::check::Check;
use super::error::Problem;
use super::listen::is_loopback;
use crate::api::auth::{Role, TOKENS_MAX, Token, TokenHash, Tokens};
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// The longest name of a token, in bytes; it stands in log lines.
const NAME_LEN_MAX: usize = 64;

/// Who may use the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// The tokens; without any, whoever reaches the listener may do everything.
    pub tokens: Tokens,
    /// What needs no token all the same.
    pub public: Public,
    /// Whether to listen beyond loopback without TLS or without a token.
    pub insecure: bool,
}

/// What can be read without a token, although there are tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Public {
    /// `/metrics`.
    pub metrics: bool,
    /// The status page.
    pub status: bool,
}

/// An admin listener that others can reach and that does not keep them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} can be reached from other machines, and that needs {missing}; to serve \
     without, say `admin.insecure: true` or --insecure-admin"
)]
pub struct Exposed {
    /// Where it would listen.
    pub address: SocketAddr,
    /// What it would need.
    pub missing: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAdmin {
    tokens: Option<LocatedValue<Vec<LocatedValue<RawToken>>>>,
    public: Option<Vec<LocatedScalar>>,
    insecure: Option<LocatedScalar>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    name: Option<LocatedScalar>,
    role: Option<LocatedScalar>,
    sha256: Option<LocatedScalar>,
}

// === impl Admin ===

impl Admin {
    /// Whether this may listen on `address`, with or without TLS.
    ///
    /// # Errors
    /// If `address` is more than loopback and not both TLS and a token keep others out.
    pub fn may_listen(&self, address: SocketAddr, tls: bool) -> Result<(), Exposed> {
        if self.insecure || is_loopback(address) {
            return Ok(());
        }
        let missing = match (tls, self.tokens.is_empty()) {
            (true, false) => return Ok(()),
            (false, true) => "TLS and a token (admin.tokens)",
            (false, false) => "TLS",
            (true, true) => "a token (admin.tokens)",
        };
        Err(Exposed { address, missing })
    }
}

// === free functions ===

/// Checks the section.
pub(super) fn admin(check: &mut Check, raw: Option<&RawAdmin>) -> Admin {
    let mut admin = Admin::default();
    let Some(raw) = raw else { return admin };
    if let Some(list) = &raw.tokens {
        admin.tokens = tokens(check, list);
    }
    for (i, text) in raw.public.iter().flatten().enumerate() {
        match text.as_str() {
            "metrics" => admin.public.metrics = true,
            "status" => admin.public.status = true,
            other => {
                let problem = Problem::NoSuchPage(other.to_owned());
                check.refuse(text.at, format!("admin.public[{i}]"), problem);
            }
        }
    }
    let insecure = check.value(raw.insecure.as_ref(), "admin.insecure", yes_or_no);
    admin.insecure = insecure.unwrap_or(false);
    admin
}

fn tokens(check: &mut Check, list: &LocatedValue<Vec<LocatedValue<RawToken>>>) -> Tokens {
    if list.value.len() > TOKENS_MAX {
        let problem = Problem::TooManyTokens(list.value.len());
        check.refuse(list.at, "admin.tokens", problem);
        return Tokens::default();
    }
    let tokens = list.value.iter().enumerate();
    let tokens: Vec<(Location, Token)> = tokens
        .filter_map(|(i, raw)| Some((raw.at, token(check, i, raw)?)))
        .collect();
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for (at, token) in &tokens {
        if !names.insert(&token.name) {
            let problem = Problem::DuplicateToken(format!("the name {:?}", token.name));
            check.refuse(*at, "admin.tokens", problem);
        }
        if !hashes.insert(token.hash) {
            let problem = Problem::DuplicateToken(format!("the token of {:?}", token.name));
            check.refuse(*at, "admin.tokens", problem);
        }
    }
    Tokens::new(tokens.into_iter().map(|(_, token)| token).collect())
}

/// One token; none if something is wrong, which is noted.
fn token(check: &mut Check, index: usize, raw: &LocatedValue<RawToken>) -> Option<Token> {
    let field = |name: &str| format!("admin.tokens[{index}].{name}");
    let at = raw.at;
    let raw = &raw.value;
    let parts = [
        ("name", &raw.name),
        ("role", &raw.role),
        ("sha256", &raw.sha256),
    ];
    for (name, _) in parts.iter().filter(|(_, text)| text.is_none()) {
        check.refuse(at, field(name), Problem::Missing);
    }
    let name = check.value(raw.name.as_ref(), &field("name"), name);
    let role = check.value(raw.role.as_ref(), &field("role"), |text| {
        Role::from_name(text).ok_or_else(|| Problem::Role(text.to_owned()))
    });
    let hash = check.value(raw.sha256.as_ref(), &field("sha256"), |text| {
        // Not quoted: it may be the token itself.
        TokenHash::from_hex(text).ok_or(Problem::TokenHash(text.len()))
    });
    Some(Token {
        name: name?,
        role: role?,
        hash: hash?,
    })
}

fn name(text: &str) -> Result<String, Problem> {
    let good = |c: char| c.is_alphanumeric() || "-_.@/ ".contains(c);
    if text.is_empty() || text.len() > NAME_LEN_MAX || !text.chars().all(good) {
        return Err(Problem::TokenName(text.chars().take(80).collect()));
    }
    Ok(text.to_owned())
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, Problem> {
    text.parse()
        .map_err(|_| Problem::NotYesOrNo(text.to_owned()))
}

#[cfg(test)]
mod tests;
