//! Bearer tokens of the admin API, and the role of each.
//!
//! The configuration holds only SHA-256 hashes, so a reader of the file cannot use it to get in. A
//! token is 256 random bits; it cannot be guessed, and a slow password hash would only be a way to
//! make the coordinator busy. Every presented token is compared with all that are known, in
//! constant time, so the time of an answer tells nothing about them.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

/// The most tokens in a configuration: each presented one is compared with all of them.
pub const TOKENS_MAX: usize = 100;

/// Prefix of new tokens, by which a scanner for leaked secrets can find them.
const PREFIX: &str = "tollgate_";

/// Role of a token; a later one allows all that an earlier does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reading.
    Viewer,
    /// Reading and writing.
    Admin,
}

/// A SHA-256 hash of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

/// One token that the configuration knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the owner, for logs.
    pub name: String,
    /// Role that it gives.
    pub role: Role,
    /// Its hash.
    pub hash: TokenHash,
}

/// All tokens that the configuration knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

/// A new token: the text for its owner, the hash for the configuration.
///
/// ```
/// let token = tollgate_config::tokens::NewToken::from_random([7; 32]);
/// assert!(token.text.starts_with("tollgate_0707"));
/// assert_eq!(token.hash, tollgate_config::tokens::TokenHash::of(&token.text));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Text that its owner sends.
    pub text: String,
    /// Hash for `sha256` in the configuration.
    pub hash: TokenHash,
}

// === impl Role ===

impl Role {
    /// The name in the configuration and in refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }

    /// The role called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Viewer, Self::Admin];
        all.into_iter().find(|role| role.name() == name)
    }
}

// === impl TokenHash ===

impl TokenHash {
    /// The hash of `token`.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// The hash that 64 hexadecimal digits write; `None` if `text` is anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |i: usize| char::from(pair[i]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    /// As hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Tokens ===

impl Tokens {
    /// These tokens and no other.
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The token that `presented` is.
    pub fn find(&self, presented: &str) -> Option<&Token> {
        let TokenHash(hash) = TokenHash::of(presented);
        // No early return: all are compared, whichever it is.
        let mut found = u64::MAX;
        for (i, token) in (0_u64..).zip(&self.0) {
            found.conditional_assign(&i, token.hash.0.ct_eq(&hash));
        }
        self.0.get(usize::try_from(found).ok()?)
    }
}

// === impl NewToken ===

impl NewToken {
    /// The token that `random` makes; each byte must come from the system's source of randomness.
    pub fn from_random(random: [u8; 32]) -> Self {
        let text = format!("{PREFIX}{}", TokenHash(random));
        let hash = TokenHash::of(&text);
        Self { text, hash }
    }
}

impl fmt::Debug for NewToken {
    /// Without the text, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

// === free functions ===

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, role: Role) -> Token {
        Token {
            name: name.to_owned(),
            role,
            hash: TokenHash::of(&format!("secret of {name}")),
        }
    }

    #[test]
    fn hashes_are_sha_256() {
        // FIPS 180-2, appendix B.1.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), hash);
        assert_eq!(TokenHash::from_hex(hash), Some(TokenHash::of("abc")));
        let upper = hash.to_ascii_uppercase();
        assert_eq!(TokenHash::from_hex(&upper), Some(TokenHash::of("abc")));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let hash = TokenHash::of("abc").to_string();
        for bad in [
            "",
            &hash[1..],
            &format!("{hash}0"),
            &hash.replace('b', "g"),
            &hash.replace('b', "+"),
            &"ü".repeat(32),
        ] {
            assert_eq!(TokenHash::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_token_is_found_and_nothing_else() {
        let all = vec![token("a", Role::Viewer), token("b", Role::Admin)];
        let tokens = Tokens::new(all.clone());
        assert_eq!(tokens.find("secret of a"), Some(&all[0]));
        assert_eq!(tokens.find("secret of b"), Some(&all[1]));
        for other in ["", "secret of c", "secret of", "secret of a ", "a"] {
            assert_eq!(tokens.find(other), None, "{other}");
        }
        assert_eq!(Tokens::default().find(""), None);
    }

    #[test]
    fn roles_grow() {
        assert!(Role::Admin > Role::Viewer);
        assert_eq!(Role::from_name("viewer"), Some(Role::Viewer));
        assert_eq!(Role::from_name("admin"), Some(Role::Admin));
        assert_eq!(Role::from_name("root"), None);
    }

    #[test]
    fn a_new_token_is_its_random_bytes_and_hides_in_logs() {
        let token = NewToken::from_random(std::array::from_fn(|i| i as u8));
        assert_eq!(token.text.len(), PREFIX.len() + 64);
        assert!(token.text.ends_with("1c1d1e1f"));
        assert_eq!(token.hash, TokenHash::of(&token.text));
        assert!(!format!("{token:?}").contains(&token.text));
    }
}
