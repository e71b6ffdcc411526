//! What Prometheus sees of TLS.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::{Door, Holder};

/// The metrics of TLS; clones share them.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    handshakes: Family<Refused, Counter>,
    reloads: Family<Reloaded, Counter>,
    expiry: Family<OfHolder, Gauge<u64, AtomicU64>>,
}

/// Why a handshake came to nothing.
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
struct Refused {
    door: Door,
    reason: HandshakeFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reloaded {
    door: Holder,
    result: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHolder {
    door: Holder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outcome {
    Taken,
    Refused,
}

// === impl TlsMetrics ===

impl TlsMetrics {
    /// Shown in `registry`, without values before a door speaks TLS.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "TLS handshakes that came to nothing";
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

    /// `holder` speaks TLS, with a certificate that expires then, counted from 1970, if it has one.
    pub fn start(&self, holder: Holder, expires: Option<Duration>) {
        if let Holder::Door(door) = holder {
            for reason in HandshakeFault::ALL {
                // Shown as zero from the start, so that the first error is seen as a rise.
                drop(self.handshakes.get_or_create(&Refused { door, reason }));
            }
        }
        for result in [Outcome::Taken, Outcome::Refused] {
            drop(self.reloads.get_or_create(&Reloaded::of(holder, result)));
        }
        self.expires(holder, expires);
    }

    /// A handshake at `door` came to nothing.
    pub fn count_handshake(&self, door: Door, reason: HandshakeFault) {
        self.handshakes
            .get_or_create(&Refused { door, reason })
            .inc();
    }

    /// The changed files of `holder` are in use.
    pub(super) fn count_taken(&self, holder: Holder, expires: Option<Duration>) {
        let taken = Reloaded::of(holder, Outcome::Taken);
        self.reloads.get_or_create(&taken).inc();
        self.expires(holder, expires);
    }

    /// The changed files of `holder` cannot be used.
    pub(super) fn count_refused(&self, holder: Holder) {
        let refused = Reloaded::of(holder, Outcome::Refused);
        self.reloads.get_or_create(&refused).inc();
    }

    fn expires(&self, holder: Holder, expires: Option<Duration>) {
        let Some(expires) = expires else { return };
        let expiry = self.expiry.get_or_create(&OfHolder { door: holder });
        expiry.set(expires.as_secs());
    }
}

// === impl Reloaded ===

impl Reloaded {
    fn of(door: Holder, result: Outcome) -> Self {
        Self { door, result }
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

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
        };
        name.encode(encoder)
    }
}

impl EncodeLabelValue for Door {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}

impl EncodeLabelValue for Holder {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.name().encode(encoder)
    }
}
