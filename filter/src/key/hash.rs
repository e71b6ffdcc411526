//! Hashes of keys that are too long, or credentials.

use sha2::{Digest as _, Sha256};

/// Bytes of the hash that a key has: nobody finds two values with the same.
const LEN: usize = 16;

/// Returns `sha256:` and the first 32 hexadecimal digits of the hash of `value`, as `sha256sum` prints them.
pub(crate) fn hashed(value: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(value).iter().take(LEN) {
        for digit in [byte >> 4, byte & 0xf] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_other_tools() {
        // printf %s abc | sha256sum
        assert_eq!(hashed(b"abc"), "sha256:ba7816bf8f01cfea414140de5dae2223");
    }
}
