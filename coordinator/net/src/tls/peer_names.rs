//! Names in the certificate of the other side.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Names in the certificate that a client has shown: DNS names in lower case, and URIs. Each request
/// over a connection with one has them among its extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNames(Arc<[String]>);

// === impl PeerNames ===

impl PeerNames {
    /// The alternative names of `certificate`, whose issuer has been checked; none if they cannot be
    /// read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(read(certificate).unwrap_or_default().into())
    }

    /// Whether one of `names` is among them.
    pub fn has_one_of(&self, names: &[String]) -> bool {
        self.0.iter().any(|shown| names.contains(shown))
    }
}

// === free functions ===

fn read(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let certificate = parsed.tbs_certificate();
    let (_, names) = certificate.get_extension::<SubjectAltName>().ok()??;
    let names = names.0.iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str().to_owned()),
        _ => None,
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_are_those_of_dns_and_uris() {
        let mut params = CertificateParams::new(["EU.example".to_owned()]).unwrap();
        params.subject_alt_names.extend([
            SanType::URI("spiffe://example/EU".try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
        ]);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let names = PeerNames::of(certificate.der());
        let rows = [
            ("eu.example", true),
            ("spiffe://example/EU", true),
            ("spiffe://example/eu", false),
            ("example", false),
            ("127.0.0.1", false),
        ];
        for (name, is_one) in rows {
            assert_eq!(names.has_one_of(&[name.to_owned()]), is_one, "{name}");
        }
        let garbage = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(PeerNames::of(&garbage), PeerNames::default());
    }
}
