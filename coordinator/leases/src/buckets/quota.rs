//! Use of a quota as it is stored.

use serde::{Deserialize, Serialize};
use tollgate_core::fleet::{EndedWindow, QuotaCredit, QuotaEvent, QuotaRecord, UsedPart};
use tollgate_core::units::{Tokens, WallTime};

/// Use of a quota. Times are milliseconds since 1970, and tokens millionths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct StoredQuota {
    /// The name of its period.
    per: String,
    /// Tokens that are used: the time until which they count, all of them, and those that credits paid.
    parts: Vec<(u64, u64, u64)>,
    /// Credits: id, tokens, those that are left, and the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    credits: Vec<(String, u64, u64, u64)>,
    /// Windows that have ended: start, end, and tokens that were used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ended: Vec<(u64, u64, u64)>,
    /// Changes that people made: time, name of the token, id of a credit, and tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<(u64, String, Option<String>, u64)>,
}

// === impl StoredQuota ===

impl From<&QuotaRecord> for StoredQuota {
    fn from(record: &QuotaRecord) -> Self {
        let part = |part: &UsedPart| {
            let (used, credited) = (part.used.as_micros(), part.credited.as_micros());
            (part.until.as_millis(), used, credited)
        };
        let credit = |credit: &QuotaCredit| {
            let (amount, left) = (credit.amount.as_micros(), credit.left.as_micros());
            (credit.id.clone(), amount, left, credit.until.as_millis())
        };
        let ended = |window: &EndedWindow| {
            let (start, end) = (window.start.as_millis(), window.end.as_millis());
            (start, end, window.used.as_micros())
        };
        let event = |event: &QuotaEvent| {
            let (at, tokens) = (event.at.as_millis(), event.tokens.as_micros());
            (at, event.by.clone(), event.credit.clone(), tokens)
        };
        Self {
            per: record.name.clone(),
            parts: record.parts.iter().map(part).collect(),
            credits: record.credits.iter().map(credit).collect(),
            ended: record.ended.iter().map(ended).collect(),
            events: record.events.iter().map(event).collect(),
        }
    }
}

// === impl QuotaRecord ===

impl From<&StoredQuota> for QuotaRecord {
    fn from(stored: &StoredQuota) -> Self {
        let part = |&(until, used, credited): &(u64, u64, u64)| UsedPart {
            until: WallTime::from_millis(until),
            used: Tokens::from_micros(used),
            credited: Tokens::from_micros(credited),
        };
        let credit = |(id, amount, left, until): &(String, u64, u64, u64)| QuotaCredit {
            id: id.clone(),
            amount: Tokens::from_micros(*amount),
            left: Tokens::from_micros(*left),
            until: WallTime::from_millis(*until),
        };
        let ended = |&(start, end, used): &(u64, u64, u64)| EndedWindow {
            start: WallTime::from_millis(start),
            end: WallTime::from_millis(end),
            used: Tokens::from_micros(used),
        };
        let event = |(at, by, credit, tokens): &(u64, String, Option<String>, u64)| QuotaEvent {
            at: WallTime::from_millis(*at),
            by: by.clone(),
            credit: credit.clone(),
            tokens: Tokens::from_micros(*tokens),
        };
        Self {
            name: stored.per.clone(),
            parts: stored.parts.iter().map(part).collect(),
            credits: stored.credits.iter().map(credit).collect(),
            ended: stored.ended.iter().map(ended).collect(),
            events: stored.events.iter().map(event).collect(),
        }
    }
}
