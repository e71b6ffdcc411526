//! Calls as bytes that were written down, `tests/vectors/doorman`, sent as they are.

use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::Bytes;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// A call: its method and its message.
pub(crate) struct Vector {
    method: PathAndQuery,
    message: Vec<u8>,
}

/// Leaves messages as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

// === impl Vector ===

impl Vector {
    /// The vector called `name`: a line with the method, then hexadecimal bytes; `#` starts a
    /// comment.
    pub(crate) fn read(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors/doorman");
        let text = std::fs::read_to_string(format!("{folder}/{name}.hex")).unwrap();
        let lines = text.lines().map(|line| line.split('#').next().unwrap());
        let mut lines = lines.map(str::trim).filter(|line| !line.is_empty());
        let method = lines.next().unwrap().parse().unwrap();
        let bytes = lines.flat_map(str::split_whitespace);
        let message = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap());
        Self {
            method,
            message: message.collect(),
        }
    }

    /// The message that is answered.
    pub(crate) async fn send(self, channel: &Channel) -> Result<Vec<u8>, Status> {
        let mut client = tonic::client::Grpc::new(channel.clone());
        let ready = client.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let answer = client.unary(Request::new(self.message), self.method, Raw);
        Ok(answer.await?.into_inner())
    }
}

// === impl Raw ===

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let len = prost::bytes::Buf::remaining(buffer);
        let bytes: Bytes = prost::bytes::Buf::copy_to_bytes(buffer, len);
        Ok(Some(bytes.to_vec()))
    }
}
