//! Keys out of addresses: the client's, cut to a prefix, and the host that a request is for.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Found;

/// Bits of a client's address that tell it apart, for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub(crate) v4: u8,
    pub(crate) v6: u8,
}

// === impl Prefixes ===

impl Prefixes {
    /// The network of `address`, which is Envoy's `ip:port`: `192.0.2.7`, or `2001:db8::/64`.
    pub(super) fn cut<'a>(self, address: &[u8]) -> Found<'a> {
        let text = match parse_address(address) {
            None => return Found::Missing,
            Some(IpAddr::V4(address)) => {
                let bits = address.to_bits() & !shifted(u32::MAX, self.v4, u32::checked_shr);
                named(Ipv4Addr::from_bits(bits).into(), self.v4, 32)
            }
            Some(IpAddr::V6(address)) => {
                let bits = address.to_bits() & !shifted(u128::MAX, self.v6, u128::checked_shr);
                named(Ipv6Addr::from_bits(bits).into(), self.v6, 128)
            }
        };
        Found::Value(Cow::Owned(text.into_bytes()))
    }
}

// === free functions ===

/// The address in Envoy's `ip:port`; one of version 4 as such, however it came.
pub(crate) fn parse_address(address: &[u8]) -> Option<IpAddr> {
    let address = core::str::from_utf8(address).ok()?;
    let address: IpAddr = without_port(address).parse().ok()?;
    Some(address.to_canonical())
}

/// `:authority` in lower case, without its port and without the dot that ends a full name.
pub(super) fn host(authority: Vec<u8>) -> Vec<u8> {
    let mut host = authority;
    host.make_ascii_lowercase();
    let digits = host.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let colon = host.len().checked_sub(digits.count().saturating_add(1));
    if let Some(colon) = colon.filter(|at| host.get(*at) == Some(&b':')) {
        let before = host.get(..colon).unwrap_or_default();
        // More colons are an address of version 6, which has a port only after brackets.
        if !before.contains(&b':') || before.ends_with(b"]") {
            host.truncate(colon);
        }
    }
    if host.ends_with(b".") {
        host.pop();
    }
    host
}

/// Shifts as many bits as the prefix has out of `ones`.
fn shifted<T: Default>(ones: T, prefix: u8, shift: impl Fn(T, u32) -> Option<T>) -> T {
    shift(ones, u32::from(prefix)).unwrap_or_default()
}

fn named(network: IpAddr, prefix: u8, all: u8) -> String {
    if prefix >= all {
        network.to_string()
    } else {
        format!("{network}/{prefix}")
    }
}

fn without_port(address: &str) -> &str {
    match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => match address.split_once(':') {
            Some((ip, port)) if !port.contains(':') => ip,
            _ => address,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_cut_to_their_prefix() {
        let rows = [
            ("192.0.2.77:5000", 32, "192.0.2.77"),
            ("192.0.2.77:5000", 24, "192.0.2.0/24"),
            ("192.0.2.77:5000", 0, "0.0.0.0/0"),
            ("192.0.2.77", 32, "192.0.2.77"),
            ("[2001:db8:1:2:3::4]:443", 32, "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3::4", 32, "2001:db8:1:2::/64"),
            ("[::ffff:192.0.2.77]:1", 24, "192.0.2.0/24"),
        ];
        for (address, v4, want) in rows {
            let found = Prefixes { v4, v6: 64 }.cut(address.as_bytes());
            let want = Found::Value(Cow::Owned(want.as_bytes().to_vec()));
            assert_eq!(found, want, "{address}/{v4}");
        }
        let whole = Prefixes { v4: 32, v6: 128 }.cut(b"[2001:db8::1]:1");
        assert_eq!(whole, Found::Value(Cow::Borrowed(b"2001:db8::1")));
        let none = Prefixes { v4: 32, v6: 0 }.cut(b"[2001:db8::1]:1");
        assert_eq!(none, Found::Value(Cow::Borrowed(b"::/0")));
    }

    #[test]
    fn what_is_not_an_address_is_no_key() {
        for address in ["", "/run/envoy.sock", "example.com:80", "1.2.3", "[::1"] {
            let found = Prefixes { v4: 32, v6: 64 }.cut(address.as_bytes());
            let good = address == "[::1";
            assert_eq!(found == Found::Missing, !good, "{address:?}");
        }
    }

    #[test]
    fn hosts_are_compared_without_case_port_and_dot() {
        let rows = [
            ("Example.COM", "example.com"),
            ("example.com:8443", "example.com"),
            ("example.com.:80", "example.com"),
            ("example.com:", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("", ""),
            (":80", ""),
            ("127.0.0.1:80", "127.0.0.1"),
        ];
        for (authority, want) in rows {
            let host = host(authority.as_bytes().to_vec());
            assert_eq!(String::from_utf8(host).unwrap(), want, "{authority}");
        }
    }
}
