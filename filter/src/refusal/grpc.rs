//! Status of a refused gRPC call: as header fields, and in a body as gRPC-Web has it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tollgate_engine::Reply;

use super::details;

const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;
/// Begins a frame of trailers in a body of gRPC-Web.
const TRAILERS: u8 = 0x80;

/// Status of a call in gRPC's header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrpcStatus {
    code: String,
    /// Percent-encoded.
    message: String,
    details: String,
    /// Milliseconds.
    pushback: Option<String>,
}

// === impl GrpcStatus ===

impl GrpcStatus {
    /// Returns the status of `reply`, a refusal by `rule`.
    pub(super) fn new(reply: &Reply, rule: &str) -> Self {
        let code = if reply.is_throttling {
            RESOURCE_EXHAUSTED
        } else {
            INVALID_ARGUMENT
        };
        let metadata = [("reason", reply.reason.as_str()), ("rule", rule)];
        Self {
            code: code.to_string(),
            message: percent_encoded(&reply.message),
            details: details::encoded(code, &reply.message, reply.code, &metadata, reply.pause),
            pushback: reply.pause_ms().map(|pause| pause.to_string()),
        }
    }

    /// Returns names and values of the header fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let status = [
            ("grpc-status", self.code.as_str()),
            ("grpc-message", self.message.as_str()),
            ("grpc-status-details-bin", self.details.as_str()),
        ];
        // By gRFC A6 a client that may retry does so after this time.
        let pushback = self.pushback.as_deref();
        let pushback = pushback.map(|ms| ("grpc-retry-pushback-ms", ms));
        status.into_iter().chain(pushback)
    }

    /// Returns a body of gRPC-Web with nothing but the status: a frame of trailers.
    pub(super) fn web_body(&self, is_text: bool) -> Vec<u8> {
        let mut trailers = String::new();
        for (name, value) in self.fields() {
            trailers.extend([name, ":", value, "\r\n"]);
        }
        let len = u32::try_from(trailers.len()).unwrap_or(u32::MAX);
        let mut frame = vec![TRAILERS];
        frame.extend(len.to_be_bytes());
        frame.extend(trailers.as_bytes());
        if is_text {
            STANDARD.encode(frame).into_bytes()
        } else {
            frame
        }
    }
}

// === free functions ===

/// Returns `message` as gRPC sends it: everything but printable ASCII is encoded, and the percent sign.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' => encoded.push_str("%25"),
            b' '..=b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> GrpcStatus {
        GrpcStatus {
            code: "8".to_owned(),
            message: "no".to_owned(),
            details: "CAg".to_owned(),
            pushback: Some("2".to_owned()),
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        let rows = [
            ("too many: 5 ms", "too many: 5 ms"),
            ("100 %", "100 %25"),
            ("größe", "gr%C3%B6%C3%9Fe"),
            ("a\r\nb", "a%0D%0Ab"),
        ];
        for (message, want) in rows {
            assert_eq!(percent_encoded(message), want);
        }
    }

    #[test]
    fn a_body_of_grpc_web_is_a_frame_of_trailers() {
        let mut want = vec![0x80, 0, 0, 0, 87];
        want.extend(
            b"grpc-status:8\r\ngrpc-message:no\r\ngrpc-status-details-bin:CAg\r\n\
              grpc-retry-pushback-ms:2\r\n",
        );
        let body = status().web_body(false);
        assert_eq!(body, want);
        let text = status().web_body(true);
        assert_eq!(STANDARD.decode(text).unwrap(), want);
    }
}
