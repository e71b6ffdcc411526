//! The machine or network that a connection comes from.

use std::net::{IpAddr, SocketAddr};

/// An IPv4 address, or the network of an IPv6 address: a single machine has 2⁶⁴ addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionSource(IpAddr);

// === impl ConnectionSource ===

impl From<SocketAddr> for ConnectionSource {
    fn from(address: SocketAddr) -> Self {
        Self(match address.ip().to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() >> 64 << 64;
                IpAddr::V6(network.into())
            }
            ip => ip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionSource;

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_network() {
        let source =
            |text: &str| ConnectionSource::from(text.parse::<std::net::SocketAddr>().unwrap());
        assert_ne!(source("10.0.0.1:1"), source("10.0.0.2:1"));
        assert_eq!(source("10.0.0.1:1"), source("[::ffff:10.0.0.1]:2"));
        assert_eq!(source("[2001:db8::1]:1"), source("[2001:db8::ffff:2]:2"));
        assert_ne!(source("[2001:db8::1]:1"), source("[2001:db8:0:1::1]:1"));
    }
}
