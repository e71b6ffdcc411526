//! From the bytes of a door's files to what rustls shows in a handshake.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error, RootCertStore, ServerConfig};

use super::{Contents, Door, Files, Loaded, Reason, TlsError};

/// What `contents` of `files` mean for `door` at `now`, counted from 1970.
pub(super) fn loaded(
    files: &Files,
    contents: &Contents,
    door: Door,
    now: Duration,
) -> Result<Loaded, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.cert, &contents.cert)?;
    for certificate in &chain {
        in_time(&provider, certificate, now).map_err(|reason| refuse(&files.cert, reason))?;
    }
    let first = chain.first().cloned();
    let first = first.ok_or_else(|| refuse(&files.cert, Reason::Nothing("certificate")))?;
    let expires = expiry(&provider, &first).map_err(|reason| refuse(&files.cert, reason))?;
    let key = private_key(&files.key, &contents.key)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|cause| refuse(&files.cert, Reason::Unusable(cause)))?;
    let verifier = verifier(files, contents, provider)?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|cause| key_error(files, cause))?;
    config.alpn_protocols = vec![door.protocol().to_vec()];
    if contents.key_is_open {
        let key = files.key.display();
        tracing::warn!(%key, door = door.name(), "everybody on this machine can read the key");
    }
    Ok(Loaded {
        config: Arc::new(config),
        expires,
    })
}

fn refuse(file: &Path, reason: Reason) -> TlsError {
    TlsError {
        file: file.to_owned(),
        reason,
    }
}

fn certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|cause| refuse(file, Reason::Pem(cause)))?;
    if certificates.is_empty() {
        return Err(refuse(file, Reason::Nothing("certificate")));
    }
    Ok(certificates)
}

fn private_key(file: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|cause| match cause {
        pem::Error::NoItemsFound => refuse(file, Reason::Nothing("private key")),
        cause => refuse(file, Reason::Pem(cause)),
    })
}

/// Who may connect: everybody, or those with a certificate of `client_ca`.
fn verifier(
    files: &Files,
    contents: &Contents,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (Some(file), Some(text)) = (&files.client_ca, &contents.client_ca) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, text)? {
        let added = roots.add(certificate);
        added.map_err(|cause| refuse(file, Reason::ClientCa(cause.to_string())))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|cause| refuse(file, Reason::ClientCa(cause.to_string())))
}

/// Whether `certificate` is one, and valid at `now`.
fn in_time(
    provider: &Arc<CryptoProvider>,
    certificate: &CertificateDer<'_>,
    now: Duration,
) -> Result<(), Reason> {
    use CertificateError::{BadEncoding, Expired, ExpiredContext, NotValidYetContext};
    match judge(provider, certificate, now) {
        Err(Error::InvalidCertificate(ExpiredContext { not_after, .. })) => {
            Err(Reason::Expired(rfc3339(not_after)))
        }
        Err(Error::InvalidCertificate(NotValidYetContext { not_before, .. })) => {
            Err(Reason::NotYetValid(rfc3339(not_before)))
        }
        Err(cause @ Error::InvalidCertificate(BadEncoding | Expired)) => {
            Err(Reason::Unusable(cause))
        }
        // Who issued it and for which names is for clients to judge: they know whom they trust.
        _ => Ok(()),
    }
}

/// When `certificate` expires: rustls says so only of one that has, so it is asked about the end
/// of time.
fn expiry(
    provider: &Arc<CryptoProvider>,
    certificate: &CertificateDer<'_>,
) -> Result<Duration, Reason> {
    match judge(provider, certificate, Duration::from_secs(u64::MAX)) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok(Duration::from_secs(not_after.as_secs()))
        }
        Err(cause) => Err(Reason::Unusable(cause)),
        Ok(()) => Err(Reason::Nothing("time at which its certificate expires")),
    }
}

/// What rustls says of `certificate` at `now`. The time is what it looks at first; that it does not
/// know the issuer comes after that.
fn judge(
    provider: &Arc<CryptoProvider>,
    certificate: &CertificateDer<'_>,
    now: Duration,
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone().into_owned())?;
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let verifier = verifier.map_err(|cause| Error::General(cause.to_string()))?;
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let now = UnixTime::since_unix_epoch(now);
    verifier
        .verify_server_cert(certificate, &[], &name, &[], now)
        .map(drop)
}

fn key_error(files: &Files, cause: Error) -> TlsError {
    match cause {
        Error::InconsistentKeys(_) => refuse(&files.key, Reason::KeyOfAnother(files.cert.clone())),
        Error::InvalidCertificate(_) => refuse(&files.cert, Reason::Unusable(cause)),
        cause => refuse(&files.key, Reason::Unusable(cause)),
    }
}

fn rfc3339(time: UnixTime) -> humantime::Rfc3339Timestamp {
    // A time that no calendar has is told as 1970 rather than not at all.
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs()));
    humantime::format_rfc3339_seconds(time.unwrap_or(UNIX_EPOCH))
}
