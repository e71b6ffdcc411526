//! Sections `tls` of the servers that a coordinator calls: the issuer to trust, and the certificate
//! to show.

use rustls::pki_types::ServerName;
use serde::Deserialize;
use tollgate_net::tls::ClientFiles;

use crate::catalog::check::Check;
use crate::catalog::spec::{LocatedScalar, LocatedValue};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClientTls {
    ca: Option<LocatedScalar>,
    cert: Option<LocatedScalar>,
    key: Option<LocatedScalar>,
    server_name: Option<LocatedScalar>,
}

// === impl RawClientTls ===

impl RawClientTls {
    /// Whether it names a certificate to show.
    pub(super) fn shows(&self) -> bool {
        self.cert.is_some() || self.key.is_some()
    }
}

// === free functions ===

/// Checks the section called `section`; `None` if it has errors, which are noted.
pub(super) fn client_tls(
    check: &mut Check,
    section: &str,
    raw: &LocatedValue<RawClientTls>,
) -> Option<ClientFiles> {
    let field = |name: &str| format!("{section}.{name}");
    let LocatedValue { value: raw, at } = raw;
    let ca = check.required_path(*at, &raw.ca, &field("ca"));
    let cert = check.path(&raw.cert, &field("cert"));
    let key = check.path(&raw.key, &field("key"));
    check.pair(section, ("cert", &raw.cert), ("key", &raw.key));
    let server_name =
        check.value(
            &raw.server_name,
            &field("server_name"),
            |text| match ServerName::try_from(text) {
                Ok(_) => Ok(text.to_owned()),
                Err(_) => Err(format!(
                    "{text:?} is neither the name of a host nor an IP address, without a port"
                )
                .into()),
            },
        );
    Some(ClientFiles {
        ca: ca?,
        identity: cert.zip(key),
        server_name,
    })
}
