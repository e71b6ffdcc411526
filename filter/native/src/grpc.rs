//! gRPC over an HTTP stream: the frames of messages, and how a stream ends.

/// Bytes of a frame before its message: a flag, and the length.
const PREFIX_LEN: usize = 5;
/// The longest message that is read; the coordinators' are far shorter.
const MESSAGE_LEN_MAX: usize = 16 << 20;
/// Statuses of gRPC.
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// Response of a gRPC stream, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Response {
    unread: Vec<u8>,
    /// The status that trailers or the lack of gRPC have given.
    status: Option<u32>,
}

// === impl Response ===

impl Response {
    /// Takes header fields or trailers.
    pub(crate) fn headers(&mut self, fields: &[(&[u8], &[u8])]) {
        let value = |name: &[u8]| {
            let field = fields.iter().find(|(key, _)| *key == name);
            field.and_then(|(_, value)| core::str::from_utf8(value).ok()?.parse().ok())
        };
        if let Some(status) = value(b"grpc-status") {
            self.status = Some(status);
        } else if let Some(http) = value(b":status").filter(|http| *http != 200) {
            self.status = Some(of_http(http));
        }
    }

    /// Takes bytes of the body, and returns the messages that are whole now.
    ///
    /// # Errors
    /// gRPC's status, if the bytes are no messages.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, u32> {
        self.unread.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some((prefix, rest)) = self.unread.split_first_chunk::<PREFIX_LEN>() {
            let [compressed, length @ ..] = *prefix;
            let len = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if compressed != 0 || len > MESSAGE_LEN_MAX {
                return Err(INTERNAL);
            }
            let Some((message, rest)) = rest.split_at_checked(len) else {
                break;
            };
            messages.push(message.to_vec());
            self.unread = rest.to_vec();
        }
        Ok(messages)
    }

    /// Returns the status of a stream that has ended.
    pub(crate) fn status_at_end(&self) -> u32 {
        self.status.unwrap_or(UNKNOWN)
    }

    /// Returns the status of a stream that was reset.
    pub(crate) fn status_at_reset(&self) -> u32 {
        match self.status {
            None | Some(0) => UNAVAILABLE,
            Some(status) => status,
        }
    }
}

// === free functions ===

/// Returns `message` in a frame.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend(len.to_be_bytes());
    frame.extend(message);
    frame
}

/// The status of gRPC that stands for one of HTTP.
fn of_http(status: u32) -> u32 {
    match status {
        404 => UNIMPLEMENTED,
        429 | 502 | 503 => UNAVAILABLE,
        504 => DEADLINE_EXCEEDED,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_from_any_pieces() {
        let bytes = [framed(b"first"), framed(b""), framed(b"third")].concat();
        for piece in 1..=bytes.len() {
            let mut response = Response::default();
            let pieces = bytes.chunks(piece);
            let messages: Vec<_> = pieces
                .flat_map(|piece| response.data(piece).unwrap())
                .collect();
            assert_eq!(
                messages,
                [b"first".to_vec(), Vec::new(), b"third".to_vec()],
                "{piece}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_messages_are_refused() {
        for wrong in [[1, 0, 0, 0, 1], [0, 255, 0, 0, 0]] {
            assert_eq!(Response::default().data(&wrong), Err(INTERNAL));
        }
    }

    #[test]
    fn the_status_is_that_of_trailers_or_of_http() {
        type Fields<'a> = &'a [(&'a [u8], &'a [u8])];
        let rows: [(Fields<'_>, u32, u32); 6] = [
            (
                &[(b":status", b"200"), (b"grpc-status", b"0")],
                0,
                UNAVAILABLE,
            ),
            (&[(b"grpc-status", b"7")], 7, 7),
            (&[(b":status", b"200")], UNKNOWN, UNAVAILABLE),
            (&[(b":status", b"503")], UNAVAILABLE, UNAVAILABLE),
            (
                &[(b":status", b"504")],
                DEADLINE_EXCEEDED,
                DEADLINE_EXCEEDED,
            ),
            (&[(b"grpc-status", b"\xff")], UNKNOWN, UNAVAILABLE),
        ];
        for (fields, at_end, at_reset) in rows {
            let mut response = Response::default();
            response.headers(fields);
            assert_eq!(response.status_at_end(), at_end, "{fields:?}");
            assert_eq!(response.status_at_reset(), at_reset, "{fields:?}");
        }
    }
}
