//! Metrics of TLS.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{CertificateOwner, Listener};

/// The metrics of TLS; clones share them.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    handshakes: Family<Labels<2>, Counter>,
    reloads: Family<Labels<2>, Counter>,
    expiry: Family<Labels<1>, Gauge<u64, AtomicU64>>,
}

/// Reason for which a handshake failed.
#[derive(Clone, Copy, Debug)]
pub enum HandshakeFault {
    /// The two sides did not agree, or the client's certificate was not accepted.
    Failed,
    /// It took too long.
    Timeout,
    /// Too many others were under way.
    Busy,
}

/// Labels with their values, of which there are a few.
pub(crate) type Labels<const N: usize> = [(&'static str, &'static str); N];

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
        // Shown as zero from the start, so that the first one is seen as a rise.
        if let CertificateOwner::Listener(listener) = owner {
            for reason in [
                HandshakeFault::Failed,
                HandshakeFault::Timeout,
                HandshakeFault::Busy,
            ] {
                drop(self.handshake(listener, reason));
            }
        }
        for result in ["taken", "refused"] {
            drop(self.reload(owner, result));
        }
        self.expires(owner, expires);
    }

    /// Counts a handshake at `listener` that failed.
    pub fn count_handshake(&self, listener: Listener, reason: HandshakeFault) {
        self.handshake(listener, reason).inc();
    }

    /// The changed files of `owner` are in use.
    pub(super) fn count_taken(&self, owner: CertificateOwner, expires: Option<Duration>) {
        self.reload(owner, "taken").inc();
        self.expires(owner, expires);
    }

    /// The changed files of `owner` cannot be used.
    pub(super) fn count_refused(&self, owner: CertificateOwner) {
        self.reload(owner, "refused").inc();
    }

    fn handshake(
        &self,
        listener: Listener,
        reason: HandshakeFault,
    ) -> impl Deref<Target = Counter> {
        let labels = [listener.label(), ("reason", reason.name())];
        self.handshakes.get_or_create(&labels)
    }

    fn reload(
        &self,
        owner: CertificateOwner,
        result: &'static str,
    ) -> impl Deref<Target = Counter> {
        self.reloads
            .get_or_create(&[owner.label(), ("result", result)])
    }

    fn expires(&self, owner: CertificateOwner, expires: Option<Duration>) {
        let Some(expires) = expires else { return };
        let expiry = self.expiry.get_or_create(&[owner.label()]);
        expiry.set(expires.as_secs());
    }
}

// === impl HandshakeFault ===

impl HandshakeFault {
    const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
        }
    }
}
