//! A hash that is the same on every machine, so that orders made from it replay.

/// Spreads neighbouring numbers over all bits: the finaliser of SplitMix64 (Steele, Lea, Flood
/// 2014).
pub(crate) fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_after(0xcbf2_9ce4_8422_2325, bytes)
}

/// The same for `bytes` that follow others, whose hash is `hash`.
pub(crate) fn fnv1a_after(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_gives_its_published_hashes() {
        let rows: [(&[u8], u64); 3] = [
            (b"", 0xcbf2_9ce4_8422_2325),
            (b"a", 0xaf63_dc4c_8601_ec8c),
            (b"foobar", 0x8594_4171_f739_67e8),
        ];
        for (bytes, want) in rows {
            assert_eq!(fnv1a(bytes), want, "{bytes:?}");
        }
    }

    /// The first numbers of SplitMix64 with the seed 1 234 567, as others have published them.
    #[test]
    fn mixed_is_the_finaliser_of_split_mix() {
        let mut state = 1_234_567_u64;
        for want in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ] {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            assert_eq!(mixed(state), want);
        }
    }
}
