//! A request as the host hands it over: its headers by name, and the client's address.

use std::collections::BTreeMap;

use crate::THREE;

/// The client's address and port.
pub(crate) const SOURCE: &[u8] = b"10.1.2.3:41234";

/// Headers of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    headers: BTreeMap<&'static str, String>,
}

// === impl Request ===

impl Request {
    /// A request whose keys are all `tenant`.
    pub(crate) fn of(tenant: &str) -> Self {
        let claims = format!(
            r#"{{"iss":"https://issuer.example","aud":"shop.example","sub":"{tenant}","exp":4102444800}}"#
        );
        let header = encoded(br#"{"alg":"HS256","kid":"example"}"#);
        let (claims, signature) = (encoded(claims.as_bytes()), encoded(&[0x5a; 32]));
        let mut headers = BTreeMap::from([
            (":path", "/api/v1/orders?page=2".to_owned()),
            (
                "authorization",
                format!("Bearer {header}.{claims}.{signature}"),
            ),
            ("cookie", format!("theme=dark; session={tenant}; lang=en")),
            ("x-email", format!("someone@{tenant}")),
            ("x-kind", "web".to_owned()),
            ("x-tier", "gold".to_owned()),
        ]);
        headers.extend(THREE.map(|name| (name, tenant.to_owned())));
        Self { headers }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &[u8]) -> Option<&str> {
        let name = str::from_utf8(name).ok()?;
        self.headers.get(name).map(String::as_str)
    }
}

/// Base64 for URLs, as in tokens.
fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = chunk
            .iter()
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |digit| DIGITS[bits >> (18 - 6 * digit) & 63])
    });
    digits.map(char::from).collect()
}
