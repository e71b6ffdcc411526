//! Section `admin`: access to the admin API.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde::Deserialize;
use serde_saphyr::Location;

use super::listen::is_loopback;
use super::tokens::{Role, TOKENS_MAX, Token, TokenHash, Tokens};
use super::values::yes_or_no;
use crate::catalog::check::{Check, Rule};
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// The longest name of a token, in bytes; it stands in log lines.
const NAME_LEN_MAX: usize = 64;

/// Access to the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// The tokens; without any, every caller may do everything.
    pub tokens: Tokens,
    /// Pages that need no token all the same.
    pub public: Public,
    /// Whether to listen beyond loopback without TLS or without a token.
    pub insecure: bool,
}

/// Pages that can be read without a token, although there are tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Public {
    /// `/metrics`.
    pub metrics: bool,
    /// The status page.
    pub status: bool,
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
    /// Protection that a listener on `address`, with or without TLS, needs and does not have:
    /// beyond loopback both TLS and a token.
    pub(super) fn missing_protection(
        &self,
        address: SocketAddr,
        tls: bool,
    ) -> Option<&'static str> {
        if self.insecure || is_loopback(address) {
            return None;
        }
        match (tls, self.tokens.is_empty()) {
            (true, false) => None,
            (false, true) => Some("TLS and a token (admin.tokens)"),
            (false, false) => Some("TLS"),
            (true, true) => Some("a token (admin.tokens)"),
        }
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
                let rule = format!("{other:?} is neither `metrics` nor `status`");
                check.refuse(text.at, format!("admin.public[{i}]"), rule);
            }
        }
    }
    let insecure = check.value(&raw.insecure, "admin.insecure", yes_or_no);
    admin.insecure = insecure.unwrap_or(false);
    admin
}

fn tokens(check: &mut Check, list: &LocatedValue<Vec<LocatedValue<RawToken>>>) -> Tokens {
    if list.value.len() > TOKENS_MAX {
        let rule = format!("has {} tokens, more than {TOKENS_MAX}", list.value.len());
        check.refuse(list.at, "admin.tokens", rule);
        return Tokens::default();
    }
    let tokens = list.value.iter().enumerate();
    let tokens: Vec<(Location, Token)> = tokens
        .filter_map(|(i, raw)| Some((raw.at, token(check, i, raw)?)))
        .collect();
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for (at, token) in &tokens {
        if !names.insert(&token.name) {
            let rule = format!("the name {:?} is here twice", token.name);
            check.refuse(*at, "admin.tokens", rule);
        }
        if !hashes.insert(token.hash) {
            let rule = format!("the token of {:?} is here twice", token.name);
            check.refuse(*at, "admin.tokens", rule);
        }
    }
    Tokens::new(tokens.into_iter().map(|(_, token)| token).collect())
}

/// Checks one token; `None` if it has errors, which are noted.
fn token(check: &mut Check, index: usize, raw: &LocatedValue<RawToken>) -> Option<Token> {
    let field = |name: &str| format!("admin.tokens[{index}].{name}");
    let LocatedValue { value: raw, at } = raw;
    let name = check.required(*at, &raw.name, &field("name"), name);
    let role = check.required(*at, &raw.role, &field("role"), |text| {
        let rule = || format!("{text:?} is neither `viewer` nor `admin`").into();
        Role::from_name(text).ok_or_else(rule)
    });
    let hash = check.required(*at, &raw.sha256, &field("sha256"), |text| {
        // Not quoted: it may be the token itself.
        let rule = || {
            format!(
                "has {} characters, which are not a SHA-256 hash: 64 hexadecimal digits, as \
                 `tollgate token` prints them",
                text.len()
            )
        };
        TokenHash::from_hex(text).ok_or_else(|| rule().into())
    });
    Some(Token {
        name: name?,
        role: role?,
        hash: hash?,
    })
}

fn name(text: &str) -> Result<String, Rule> {
    let good = |c: char| c.is_alphanumeric() || "-_.@/ ".contains(c);
    if text.is_empty() || text.len() > NAME_LEN_MAX || !text.chars().all(good) {
        let text: String = text.chars().take(80).collect();
        let rule = format!("{text:?} is not 1 to 64 letters, digits, spaces or any of `-_.@/`");
        return Err(rule.into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
