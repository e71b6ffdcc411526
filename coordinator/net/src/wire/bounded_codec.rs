//! Codec that refuses a message of too many fields before it is decoded.
//!
//! A bound of bytes does not bound what becomes of them: an entry of a list may have two, and takes some
//! hundred once it is decoded. 4 MiB of buckets with one empty key each would be 400 MiB.

use std::marker::PhantomData;

use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The most fields of a message, not counting those of its fields.
const FIELDS_MAX: usize = 100_000;

/// Codec of messages with a bounded number of fields.
#[derive(Clone, Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

/// Decoder of such messages.
#[derive(Clone, Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

// === impl BoundedCodec ===

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

// === impl BoundedDecoder ===

impl<U: Message + Default + Send + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // One piece: tonic decodes a message when it is there as a whole.
        if has_too_many_fields(prost::bytes::Buf::chunk(message)) {
            let text = format!("the message has more than {FIELDS_MAX} fields");
            return Err(Status::out_of_range(text));
        }
        self.0.decode(message)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

// === free functions ===

/// Whether `message` has too many fields. One that cannot be read is the decoder's to refuse, which ends at
/// the same place.
fn has_too_many_fields(mut message: &[u8]) -> bool {
    for _ in 0..=FIELDS_MAX {
        let Ok((tag, kind)) = decode_key(&mut message) else {
            return false;
        };
        if skip_field(kind, tag, &mut message, DecodeContext::default()).is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use tollgate_proto::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;

    use super::*;

    #[test]
    fn a_message_of_too_many_fields_is_refused_whatever_their_length() {
        let report = |fields: usize| RateLimitQuotaUsageReports {
            domain: "edge".to_owned(),
            bucket_quota_usages: vec![Default::default(); fields - 1],
        };
        for (fields, refused) in [(1, false), (FIELDS_MAX, false), (FIELDS_MAX + 1, true)] {
            let bytes = report(fields).encode_to_vec();
            assert_eq!(has_too_many_fields(&bytes), refused, "{fields}");
        }
        let long = RateLimitQuotaUsageReports {
            domain: "x".repeat(1 << 20),
            ..RateLimitQuotaUsageReports::default()
        };
        assert!(!has_too_many_fields(&long.encode_to_vec()));
        for broken in [&[][..], &[0xff], &[0x0a, 9, 1]] {
            assert!(!has_too_many_fields(broken), "{broken:?}");
        }
    }
}
