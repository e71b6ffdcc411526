//! Certificates of the tests' own authorities.

use anyhow::Result;
use rcgen::{
    Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};

/// An authority that issues certificates.
pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Result<Authority> {
    let mut params = CertificateParams::new(Vec::new())?;
    let name = "tollgate's tests";
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Issues a certificate for `names` with its key.
pub(crate) fn issue(authority: &Authority, names: Vec<SanType>) -> Result<(Certificate, KeyPair)> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.subject_alt_names = names;
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, authority)?, key))
}
