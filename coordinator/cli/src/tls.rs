//! TLS of the HTTP client.

use std::sync::Arc;

use rustls::crypto::ring;
use tollgate_net::tls::Credentials;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Returns a configuration that trusts and shows what `credentials` say.
///
/// # Errors
/// If a file that was found to be good cannot be read again.
pub(crate) fn config(credentials: &Credentials) -> Result<TlsConfig, ureq::Error> {
    let roots = certificates(credentials.ca())?;
    let config = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots));
    let Some((cert, key)) = credentials.identity() else {
        return Ok(config.build());
    };
    let identity = ClientCert::new_with_certs(&certificates(cert)?, PrivateKey::from_pem(key)?);
    Ok(config.client_cert(Some(identity)).build())
}

/// Returns all certificates in `pem`.
fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, ureq::Error> {
    let items = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    items.collect()
}
