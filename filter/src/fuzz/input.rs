//! Any bytes, read as the values that are needed next.

/// Remainder of an input; at its end all that is read is zero.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

// === impl Input ===

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Eight bytes, the lowest first.
    pub(super) fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        let bytes = self.take(8);
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    /// As many bytes as the two before them say, or as there are.
    pub(super) fn part(&mut self) -> &'a [u8] {
        let len = u16::from_le_bytes([self.byte(), self.byte()]);
        self.take(len.into())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (part, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        part
    }
}
