//! Details of a refused gRPC call beyond its status: the bytes of `grpc-status-details-bin`.
//!
//! A [`google.rpc.Status`](https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto)
//! with an `ErrorInfo` that programs can tell refusals apart by, and a `RetryInfo` with the exact
//! pause: some clients (OTLP's, for one) retry RESOURCE_EXHAUSTED only if there is one. Four small
//! messages, written out here because the crates that have them bring a gRPC stack along.

use core::time::Duration;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;

/// Source of the reasons, for `ErrorInfo.domain`.
const DOMAIN: &str = "tollgate";

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<RetryDelay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct RetryDelay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// The header's value: base64 without padding, as gRPC sends it. `reason` is in capitals.
pub(super) fn encoded(
    code: i32,
    message: &str,
    reason: &str,
    metadata: &[(&str, &str)],
    pause: Option<Duration>,
) -> String {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let info = ErrorInfo {
        reason: reason.to_owned(),
        domain: DOMAIN.to_owned(),
        metadata: metadata.iter().map(owned).collect(),
    };
    let mut details = vec![any("ErrorInfo", &info)];
    if let Some(pause) = pause {
        let retry_delay = Some(RetryDelay {
            seconds: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(pause.subsec_nanos()).unwrap_or(0),
        });
        details.push(any("RetryInfo", &RetryInfo { retry_delay }));
    }
    let status = Status {
        code,
        message: message.to_owned(),
        details,
    };
    STANDARD_NO_PAD.encode(status.encode_to_vec())
}

fn any(name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("type.googleapis.com/google.rpc.{name}"),
        value: message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(value: &str) -> Status {
        Status::decode(&STANDARD_NO_PAD.decode(value).unwrap()[..]).unwrap()
    }

    #[test]
    fn the_details_name_the_reason_and_the_pause() {
        let pause = Duration::new(3, 7);
        let status = decoded(&encoded(8, "why", "REASON", &[("a", "b")], Some(pause)));
        assert_eq!((status.code, status.message.as_str()), (8, "why"));
        let [info, retry] = &status.details[..] else {
            panic!("{status:?}")
        };
        assert_eq!(info.type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        let info = ErrorInfo::decode(&info.value[..]).unwrap();
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            ("REASON", DOMAIN)
        );
        assert_eq!(info.metadata["a"], "b");
        assert_eq!(retry.type_url, "type.googleapis.com/google.rpc.RetryInfo");
        let retry = RetryInfo::decode(&retry.value[..]).unwrap();
        let delay = retry.retry_delay.unwrap();
        assert_eq!((delay.seconds, delay.nanos), (3, 7));
    }

    #[test]
    fn an_unknown_pause_is_not_told() {
        let status = decoded(&encoded(8, "", "REASON", &[], None));
        assert_eq!(status.details.len(), 1);
        let longest = decoded(&encoded(8, "", "REASON", &[], Some(Duration::MAX)));
        let retry = RetryInfo::decode(&longest.details[1].value[..]).unwrap();
        assert_eq!(retry.retry_delay.unwrap().seconds, i64::MAX);
    }
}
