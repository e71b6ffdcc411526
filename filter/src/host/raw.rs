//! Calls of the host for which the SDK's own do not do: they panic where Envoy refuses, and lack the details of a
//! reply.

#![expect(unsafe_code, reason = "a call of the host")]

use super::HostError;

/// Text for `%RESPONSE_CODE_DETAILS%`.
const DETAILS: &str = crate::RESPONSE_DETAILS;
/// Status of gRPC where there is none.
const NO_GRPC: i32 = -1;
/// The map of the request's headers.
const REQUEST_HEADERS: u32 = 0;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    safe fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_len: usize,
        grpc_status: i32,
    ) -> u32;
    safe fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    safe fn proxy_remove_header_map_value(map: u32, name: *const u8, name_len: usize) -> u32;
}

/// Sets a header of the request at hand, or removes it if `value` is empty.
pub(super) fn set_request_header(name: &str, value: &str) -> Result<(), HostError> {
    let (call, status) = if value.is_empty() {
        (
            "remove_header_map_value",
            proxy_remove_header_map_value(REQUEST_HEADERS, name.as_ptr(), name.len()),
        )
    } else {
        (
            "replace_header_map_value",
            proxy_replace_header_map_value(
                REQUEST_HEADERS,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            ),
        )
    };
    match status {
        0 => Ok(()),
        status => Err(HostError { call, status }),
    }
}

/// Answers the request at hand.
pub(super) fn send_reply(
    status: u32,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(), HostError> {
    let headers = flat(headers);
    // Envoy copies what it reads, within these bounds.
    let done = proxy_send_local_response(
        status,
        DETAILS.as_ptr(),
        DETAILS.len(),
        body.as_ptr(),
        body.len(),
        headers.as_ptr(),
        headers.len(),
        NO_GRPC,
    );
    match done {
        0 => Ok(()),
        status => Err(HostError {
            call: "send_local_response",
            status,
        }),
    }
}

/// A map in the form of the ABI: counts and lengths as 32-bit little-endian numbers, then names and values with a
/// zero byte after each.
fn flat(pairs: &[(&str, &str)]) -> Vec<u8> {
    let number = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = number(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend(number(name.len()));
        bytes.extend(number(value.len()));
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text.as_bytes());
        bytes.push(0);
    }
    bytes
}
