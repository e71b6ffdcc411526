//! From the bytes of files to what rustls shows and trusts in a handshake.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::{ClientFiles, Listener, LoadedTls, ServerFiles, TlsContents, TlsError, TlsFault};

/// A certificate with those of its issuers, and when it expires, since 1970.
type Chain = (Vec<CertificateDer<'static>>, Duration);

/// Checks `contents` of `files` for `listener` at `now`, counted from 1970.
pub(super) fn server(
    files: &ServerFiles,
    contents: &TlsContents,
    listener: Listener,
    now: Duration,
) -> Result<LoadedTls<ServerConfig>, TlsError> {
    let (certificates, expires) = chain(&files.cert, &contents.cert, now)?;
    let key = private_key(&files.key, contents)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|cause| TlsError::new(&files.cert, TlsFault::Unusable(cause)))?;
    let verifier = verifier(files, contents, provider)?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .map_err(|cause| key_error(&files.cert, &files.key, cause))?;
    config.alpn_protocols = vec![listener.protocol().to_vec()];
    Ok(LoadedTls {
        value: Arc::new(config),
        expires: Some(expires),
    })
}

/// Checks `contents` of `files` for a client at `now`, counted from 1970; returns when its
/// certificate expires, if it has one.
pub(super) fn client(
    files: &ClientFiles,
    contents: &TlsContents,
    now: Duration,
) -> Result<Option<Duration>, TlsError> {
    let roots = roots(&files.ca, contents.ca.as_deref().unwrap_or_default())?;
    let Some((cert, key)) = &files.identity else {
        return Ok(None);
    };
    let (certificates, expires) = chain(cert, &contents.cert, now)?;
    let private_key = private_key(key, contents)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| TlsError::new(cert, TlsFault::Unusable(cause)))?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, private_key);
    config.map_err(|cause| key_error(cert, key, cause))?;
    Ok(Some(expires))
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|cause| TlsError::new(file, TlsFault::Pem(cause)))?;
    if certificates.is_empty() {
        return Err(TlsError::new(file, TlsFault::Nothing("certificate")));
    }
    Ok(certificates)
}

/// The chain in `text` of `file`, valid at `now`.
fn chain(file: &Path, text: &[u8], now: Duration) -> Result<Chain, TlsError> {
    let certificates = certificates(file, text)?;
    let ends: Result<Vec<_>, _> = certificates.iter().map(|one| expiry(one, now)).collect();
    let ends = ends.map_err(|reason| TlsError::new(file, reason))?;
    // There is one at least.
    let first = ends.first().copied().unwrap_or_default();
    Ok((certificates, first))
}

fn private_key(file: &Path, contents: &TlsContents) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|cause| match cause {
        pem::Error::NoItemsFound => TlsError::new(file, TlsFault::Nothing("private key")),
        cause => TlsError::new(file, TlsFault::Pem(cause)),
    })?;
    if contents.key_is_open {
        tracing::warn!(key = %file.display(), "tls: key is readable by every user of this machine");
    }
    Ok(key)
}

/// Those in `text` of `file`, as issuers of the certificates of others.
fn roots(file: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, text)? {
        let added = roots.add(certificate);
        added.map_err(|cause| TlsError::new(file, TlsFault::Ca(cause.to_string())))?;
    }
    Ok(roots)
}

/// Verifier of clients: it accepts all, or those with a certificate of `client_ca`.
fn verifier(
    files: &ServerFiles,
    contents: &TlsContents,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (Some(file), Some(text)) = (&files.client_ca, &contents.ca) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = roots(file, text)?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|cause| TlsError::new(file, TlsFault::Ca(cause.to_string())))
}

/// When `certificate` expires, since 1970, if it is valid at `now`. Clients judge its issuer and
/// names: they know whom they trust.
fn expiry(certificate: &CertificateDer<'_>, now: Duration) -> Result<Duration, TlsFault> {
    let parsed = Certificate::from_der(certificate).map_err(TlsFault::Certificate)?;
    let validity = parsed.tbs_certificate().validity();
    let [begin, end] =
        [validity.not_before, validity.not_after].map(|time| time.to_unix_duration());
    if now < begin {
        return Err(TlsFault::NotYetValid(rfc3339(begin)));
    }
    if now > end {
        return Err(TlsFault::Expired(rfc3339(end)));
    }
    Ok(end)
}

fn key_error(cert: &Path, key: &Path, cause: Error) -> TlsError {
    match cause {
        Error::InconsistentKeys(_) => TlsError::new(key, TlsFault::KeyOfAnother(cert.to_owned())),
        Error::InvalidCertificate(_) => TlsError::new(cert, TlsFault::Unusable(cause)),
        cause => TlsError::new(key, TlsFault::Unusable(cause)),
    }
}

/// `time` since 1970; one that no calendar has is shown as 1970 rather than not at all.
fn rfc3339(time: Duration) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(UNIX_EPOCH.checked_add(time).unwrap_or(UNIX_EPOCH))
}
