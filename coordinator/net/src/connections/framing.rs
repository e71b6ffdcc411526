//! Messages in the body of a gRPC request.

/// Length of the head of a message: one byte that tells whether it is compressed, and its length.
const HEAD_LEN: usize = 5;

/// Finds the ends of the messages in a body that comes in pieces of any size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageFraming {
    head: [u8; HEAD_LEN],
    /// Bytes of the head that have come.
    head_len: usize,
    /// Bytes of the message that are still to come, once its head has.
    rest: usize,
    progress: MessageProgress,
}

/// Progress of a body: its complete messages, and the one that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageProgress {
    /// Number of complete messages.
    pub(super) complete: u64,
    /// Bytes of the message after them, which is not complete; 0 if none has begun.
    pub(super) begun: usize,
}

// === impl MessageFraming ===

impl MessageFraming {
    /// Takes the next bytes of the body, and returns the progress with them.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> MessageProgress {
        while !bytes.is_empty() {
            let taken = if self.head_len < HEAD_LEN {
                self.read_head(bytes)
            } else {
                let taken = self.rest.min(bytes.len());
                self.rest -= taken;
                taken
            };
            self.progress.begun += taken;
            if self.head_len == HEAD_LEN && self.rest == 0 {
                self.head_len = 0;
                self.progress.begun = 0;
                self.progress.complete += 1;
            }
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        self.progress
    }

    /// Takes bytes of the head, and returns their number.
    fn read_head(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        for (place, byte) in self.head.iter_mut().skip(self.head_len).zip(bytes) {
            *place = *byte;
            taken += 1;
        }
        self.head_len += taken;
        if self.head_len == HEAD_LEN {
            let [_, a, b, c, d] = self.head;
            self.rest = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(len.to_be_bytes());
        bytes.extend(vec![0xff; len as usize]);
        bytes
    }

    #[test]
    fn ends_are_found_whatever_the_pieces() {
        let body = [message(0), message(7), message(300), message(0)].concat();
        for size in 1..=body.len() {
            let mut framing = MessageFraming::default();
            let mut progress = MessageProgress::default();
            for piece in body.chunks(size) {
                progress = framing.read(piece);
            }
            let whole = MessageProgress {
                complete: 4,
                begun: 0,
            };
            assert_eq!(progress, whole, "pieces of {size}");
        }
    }

    #[test]
    fn a_message_is_begun_from_its_first_byte_to_its_last() {
        let mut framing = MessageFraming::default();
        let body = message(2);
        for (place, byte) in body.iter().enumerate() {
            let progress = framing.read(&[*byte]);
            let is_last = place + 1 == body.len();
            assert_eq!(progress.begun, if is_last { 0 } else { place + 1 });
            assert_eq!(progress.complete, u64::from(is_last));
        }
        // One message, and the first bytes of the next.
        let more = [message(3), vec![0, 0]].concat();
        let progress = framing.read(&more);
        assert_eq!((progress.complete, progress.begun), (2, 2));
    }
}
