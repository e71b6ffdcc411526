//! Comparison of bytes, eight at a time.
//!
//! In a wasm VM `==` of slices is a loop over single bytes in the C library, some eight operations for each.

/// Returns whether two slices have the same bytes.
#[inline]
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    let (ones, one_rest) = one.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    let mut chunks = ones.iter().zip(others);
    let mut rest = one_rest.iter().zip(other_rest);
    one.len() == other.len()
        && chunks.all(|(one, other)| u64::from_le_bytes(*one) == u64::from_le_bytes(*other))
        && rest.all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_equal_if_their_lengths_and_all_their_bytes_are() {
        let bytes: Vec<u8> = (0..40).collect();
        for len in 0..bytes.len() {
            let one = &bytes[..len];
            let copy = one.to_vec();
            assert!(equal(one, &copy));
            assert!(!equal(one, &bytes[..len + 1]));
            assert!(!equal(&bytes[..len + 1], one));
            for at in 0..len {
                let mut other = one.to_vec();
                other[at] ^= 0x80;
                assert!(!equal(one, &other), "byte {at} of {len}");
            }
        }
    }
}
