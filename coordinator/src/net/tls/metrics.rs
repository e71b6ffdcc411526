//! Metrics of TLS.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{CertificateOwner, Listener};

/// The metrics of TLS; clones share them.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    handshakes: Family<HandshakeLabels, Counter>,
    reloads: Family<ReloadLabels, Counter>,
    expiry: Family<CertificateLabels, Gauge<u64, AtomicU64>>,
}

/// Reason for which a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakeFault {
    /// The two sides did not agree, or the client's certificate was not accepted.
    Failed,
    /// It took too long.
    Timeout,
    /// Too many others were under way.
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    listener: Listener,
    reason: HandshakeFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    certificate: CertificateOwner,
    result: ReloadResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: CertificateOwner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ReloadResult {
    Taken,
    Refused,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    /// Registers the metrics, without values before a listener speaks TLS.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "TLS handshakes that failed";
        registry.register("tls_handshake_errors", help, metrics.handshakes.clone());
        let help = "Changed certificates, taken or refused";
        registry.register("tls_reloads", help, metrics.reloads.clone());
        let help = "When the certificate in use expires, since 1970";
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            help,
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        metrics
    }

    /// `owner` speaks TLS, with a certificate that expires then, counted from 1970, if it has one.
    pub fn start(&self, owner: CertificateOwner, expires: Option<Duration>) {
        if let CertificateOwner::Listener(listener) = owner {
            for reason in HandshakeFault::ALL {
                // Shown as zero from the start, so that the first error is seen as a rise.
                drop(
                    self.handshakes
                        .get_or_create(&HandshakeLabels { listener, reason }),
                );
            }
        }
        for result in [ReloadResult::Taken, ReloadResult::Refused] {
            drop(self.reloads.get_or_create(&ReloadLabels::of(owner, result)));
        }
        self.expires(owner, expires);
    }

    /// Counts a handshake at `listener` that failed.
    pub fn count_handshake(&self, listener: Listener, reason: HandshakeFault) {
        self.handshakes
            .get_or_create(&HandshakeLabels { listener, reason })
            .inc();
    }

    /// The changed files of `owner` are in use.
    pub(super) fn count_taken(&self, owner: CertificateOwner, expires: Option<Duration>) {
        let taken = ReloadLabels::of(owner, ReloadResult::Taken);
        self.reloads.get_or_create(&taken).inc();
        self.expires(owner, expires);
    }

    /// The changed files of `owner` cannot be used.
    pub(super) fn count_refused(&self, owner: CertificateOwner) {
        let refused = ReloadLabels::of(owner, ReloadResult::Refused);
        self.reloads.get_or_create(&refused).inc();
    }

    fn expires(&self, owner: CertificateOwner, expires: Option<Duration>) {
        let Some(expires) = expires else { return };
        let expiry = self
            .expiry
            .get_or_create(&CertificateLabels { certificate: owner });
        expiry.set(expires.as_secs());
    }
}

// === impl ReloadLabels ===

impl ReloadLabels {
    fn of(certificate: CertificateOwner, result: ReloadResult) -> Self {
        Self {
            certificate,
            result,
        }
    }
}

// === impl HandshakeFault ===

impl HandshakeFault {
    const ALL: [Self; 3] = [Self::Failed, Self::Timeout, Self::Busy];
}

impl EncodeLabelValue for HandshakeFault {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
        };
        name.encode(encoder)
    }
}

impl EncodeLabelValue for ReloadResult {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
        };
        name.encode(encoder)
    }
}

impl EncodeLabelValue for Listener {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}

impl EncodeLabelValue for CertificateOwner {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}
