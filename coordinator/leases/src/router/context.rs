//! Metadata of a call: the forwarding header, and the time limit.
//!
//! A forwarded call names the shard and the term of the master that it is meant for. It is answered
//! by that master or refused, and never forwarded again: so two nodes that each take the other for
//! the master send nothing to and fro.

use std::time::Duration;

use tollgate_core::cluster::ShardId;
use tollgate_core::lease::Epoch;
use tollgate_proto::timeout::grpc_timeout;
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

const SHARD: &str = "tollgate-shard";
const EPOCH: &str = "tollgate-epoch";

/// Time limit of a call without `grpc-timeout`. Envoys always send it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time limit: a master that has not answered by then will not.
const TIMEOUT_MAX: Duration = Duration::from_secs(4);

/// The shard and term that a forwarded call is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardingHeader {
    /// The shard.
    pub shard: ShardId,
    /// The term of its master; a later one will do.
    pub epoch: Epoch,
}

// === impl ForwardingHeader ===

impl ForwardingHeader {
    /// Reads the header from `metadata`; `None` if the call was not forwarded.
    ///
    /// # Errors
    /// If the shard or the term is malformed.
    pub fn read(metadata: &MetadataMap) -> Result<Option<Self>, Status> {
        let Some(shard) = metadata.get(SHARD) else {
            return Ok(None);
        };
        let shard = number(Some(shard)).and_then(|shard| u16::try_from(shard).ok());
        let epoch = number(metadata.get(EPOCH));
        let (Some(shard), Some(epoch)) = (shard, epoch) else {
            let rule = format!("{SHARD} and {EPOCH} must be numbers");
            return Err(Status::invalid_argument(rule));
        };
        Ok(Some(Self {
            shard: ShardId(shard),
            epoch: Epoch(epoch),
        }))
    }

    /// Writes the header to `metadata`.
    pub(super) fn write(self, metadata: &mut MetadataMap) {
        metadata.insert(SHARD, MetadataValue::from(self.shard.0));
        metadata.insert(EPOCH, MetadataValue::from(self.epoch.0));
    }
}

// === free functions ===

/// Time limit for forwarding a call with `metadata`: three quarters of the client's, so that the
/// other shards' answers still reach it in time.
pub(super) fn forward_timeout(metadata: &MetadataMap) -> Duration {
    let timeout = metadata.get("grpc-timeout");
    let timeout = timeout.and_then(|value| grpc_timeout(value.as_encoded_bytes()));
    timeout.unwrap_or(TIMEOUT).min(TIMEOUT_MAX) * 3 / 4
}

fn number(value: Option<&MetadataValue<tonic::metadata::Ascii>>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(entries: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in entries {
            metadata.insert(*name, value.parse().unwrap());
        }
        metadata
    }

    #[test]
    fn a_hop_is_read_as_it_was_written() {
        let forwarded = ForwardingHeader {
            shard: ShardId(63),
            epoch: Epoch(u64::MAX),
        };
        let mut metadata = MetadataMap::new();
        forwarded.write(&mut metadata);
        assert_eq!(ForwardingHeader::read(&metadata).unwrap(), Some(forwarded));
        assert_eq!(ForwardingHeader::read(&MetadataMap::new()).unwrap(), None);
    }

    /// A call that claims to be forwarded must not be taken for a client's: it would be forwarded
    /// again.
    #[test]
    fn half_a_hop_is_refused() {
        let rows: [&[(&'static str, &str)]; 4] = [
            &[(SHARD, "1")],
            &[(SHARD, "x"), (EPOCH, "1")],
            &[(SHARD, "65536"), (EPOCH, "1")],
            &[(SHARD, "1"), (EPOCH, "-1")],
        ];
        for row in rows {
            let status = ForwardingHeader::read(&metadata(row)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{row:?}");
        }
    }

    #[test]
    fn what_is_passed_on_takes_less_time_than_the_client_has() {
        let rows = [
            ("1S", 750),
            ("100m", 75),
            ("200000u", 150),
            ("400000n", 0),
            ("1H", 3000),
            ("99999999H", 3000),
            ("123456789S", 750),
            ("S", 750),
            ("", 750),
            ("ä", 750),
        ];
        for (timeout, want_ms) in rows {
            let metadata = if timeout.is_ascii() {
                metadata(&[("grpc-timeout", timeout)])
            } else {
                MetadataMap::new()
            };
            assert_eq!(forward_timeout(&metadata).as_millis(), want_ms, "{timeout}");
        }
    }
}
