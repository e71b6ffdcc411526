//! From the bytes of files to what rustls shows and trusts in a handshake.

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
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};

use super::{ClientFiles, Contents, Door, Files, Loaded, Reason, TlsError};

/// A certificate with those of its issuers.
struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    /// When the first of them expires, since 1970.
    expires: Duration,
}

/// What `contents` of `files` mean for `door` at `now`, counted from 1970.
pub(super) fn door(
    files: &Files,
    contents: &Contents,
    door: Door,
    now: Duration,
) -> Result<Loaded<ServerConfig>, TlsError> {
    let chain = chain(&files.cert, &contents.cert, now)?;
    let key = private_key(&files.key, contents)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|cause| refuse(&files.cert, Reason::Unusable(cause)))?;
    let verifier = verifier(files, contents, provider)?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.certificates, key)
        .map_err(|cause| key_error(&files.cert, &files.key, cause))?;
    config.alpn_protocols = vec![door.protocol().to_vec()];
    Ok(Loaded {
        made: Arc::new(config),
        expires: Some(chain.expires),
    })
}

/// Whether `contents` of `files` are good for a client at `now`, counted from 1970; when its
/// certificate expires, if it has one.
pub(super) fn client(
    files: &ClientFiles,
    contents: &Contents,
    now: Duration,
) -> Result<Option<Duration>, TlsError> {
    let roots = roots(&files.ca, contents.ca.as_deref().unwrap_or_default())?;
    let Some((cert, key)) = &files.identity else {
        return Ok(None);
    };
    let chain = chain(cert, &contents.cert, now)?;
    let private_key = private_key(key, contents)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| refuse(cert, Reason::Unusable(cause)))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.certificates, private_key);
    config.map_err(|cause| key_error(cert, key, cause))?;
    Ok(Some(chain.expires))
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

/// The chain in `text` of `file`, valid at `now`.
fn chain(file: &Path, text: &[u8], now: Duration) -> Result<Chain, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let certificates = certificates(file, text)?;
    for certificate in &certificates {
        in_time(&provider, certificate, now).map_err(|reason| refuse(file, reason))?;
    }
    let first = certificates.first();
    let first = first.ok_or_else(|| refuse(file, Reason::Nothing("certificate")))?;
    let expires = expiry(&provider, first).map_err(|reason| refuse(file, reason))?;
    Ok(Chain {
        certificates,
        expires,
    })
}

fn private_key(file: &Path, contents: &Contents) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|cause| match cause {
        pem::Error::NoItemsFound => refuse(file, Reason::Nothing("private key")),
        cause => refuse(file, Reason::Pem(cause)),
    })?;
    if contents.key_is_open {
        tracing::warn!(key = %file.display(), "tls: everyone on this machine can read the key");
    }
    Ok(key)
}

/// Those in `text` of `file`, as issuers of the certificates of others.
fn roots(file: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, text)? {
        let added = roots.add(certificate);
        added.map_err(|cause| refuse(file, Reason::Ca(cause.to_string())))?;
    }
    Ok(roots)
}

/// Who may connect: everybody, or those with a certificate of `client_ca`.
fn verifier(
    files: &Files,
    contents: &Contents,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (Some(file), Some(text)) = (&files.client_ca, &contents.ca) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = roots(file, text)?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|cause| refuse(file, Reason::Ca(cause.to_string())))
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

fn key_error(cert: &Path, key: &Path, cause: Error) -> TlsError {
    match cause {
        Error::InconsistentKeys(_) => refuse(key, Reason::KeyOfAnother(cert.to_owned())),
        Error::InvalidCertificate(_) => refuse(cert, Reason::Unusable(cause)),
        cause => refuse(key, Reason::Unusable(cause)),
    }
}

fn rfc3339(time: UnixTime) -> humantime::Rfc3339Timestamp {
    // A time that no calendar has is told as 1970 rather than not at all.
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(time.as_secs()));
    humantime::format_rfc3339_seconds(time.unwrap_or(UNIX_EPOCH))
}
