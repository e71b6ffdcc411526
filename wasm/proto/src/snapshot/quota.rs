//! Use of quotas in a snapshot, both ways.

use tollgate_core::fleet::{EndedWindow, QuotaCredit, QuotaEvent, QuotaRecord, UsedPart};
use tollgate_core::units::{Tokens, WallTime};

use crate::v1;

// === impl QuotaSnapshot ===

impl From<&QuotaRecord> for v1::QuotaSnapshot {
    fn from(record: &QuotaRecord) -> Self {
        let parts = record.parts.iter().map(|part| v1::UsedPart {
            until_ms: part.until.as_millis(),
            used: part.used.as_micros(),
            credited: part.credited.as_micros(),
        });
        let credits = record.credits.iter().map(|credit| v1::QuotaCredit {
            id: credit.id.clone(),
            amount: credit.amount.as_micros(),
            left: credit.left.as_micros(),
            until_ms: credit.until.as_millis(),
        });
        let ended = record.ended.iter().map(|window| v1::EndedWindow {
            start_ms: window.start.as_millis(),
            end_ms: window.end.as_millis(),
            used: window.used.as_micros(),
        });
        let events = record.events.iter().map(|event| v1::QuotaEvent {
            at_ms: event.at.as_millis(),
            by: event.by.clone(),
            credit: event.credit.clone(),
            tokens: event.tokens.as_micros(),
        });
        Self {
            name: record.name.clone(),
            parts: parts.collect(),
            credits: credits.collect(),
            ended: ended.collect(),
            events: events.collect(),
        }
    }
}

// === impl QuotaRecord ===

impl From<&v1::QuotaSnapshot> for QuotaRecord {
    fn from(message: &v1::QuotaSnapshot) -> Self {
        let parts = message.parts.iter().map(|part| UsedPart {
            until: WallTime::from_millis(part.until_ms),
            used: Tokens::from_micros(part.used),
            credited: Tokens::from_micros(part.credited),
        });
        let credits = message.credits.iter().map(|credit| QuotaCredit {
            id: credit.id.clone(),
            amount: Tokens::from_micros(credit.amount),
            left: Tokens::from_micros(credit.left),
            until: WallTime::from_millis(credit.until_ms),
        });
        let ended = message.ended.iter().map(|window| EndedWindow {
            start: WallTime::from_millis(window.start_ms),
            end: WallTime::from_millis(window.end_ms),
            used: Tokens::from_micros(window.used),
        });
        let events = message.events.iter().map(|event| QuotaEvent {
            at: WallTime::from_millis(event.at_ms),
            by: event.by.clone(),
            credit: event.credit.clone(),
            tokens: Tokens::from_micros(event.tokens),
        });
        Self {
            name: message.name.clone(),
            parts: parts.collect(),
            credits: credits.collect(),
            ended: ended.collect(),
            events: events.collect(),
        }
    }
}
