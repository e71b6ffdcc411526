//! Limits in force for a scope, and their sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tollgate_config::catalog::limits::{MatchedLimits, UnitLimits};
use tollgate_config::catalog::{GroupMembership, LimitSource, OwnLimits, ResolvedScope};
use tollgate_core::lease::{Priority, ResourceId, Unit};
use tollgate_core::limit::{Limit, Part, SafeCapacity};
use tollgate_core::quantity::amount_text;
use tollgate_core::units::{Capacity, Tokens};
use utoipa::ToSchema;

use super::App;
use super::extract::{PageQuery, Path, Query};
use super::openapi::{BadRequest, Read};
use super::problem::RestError;
use super::stored::page;
use crate::lease_view::{Amount, ms, tokens};

/// Limits in force for a scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct ScopeLimits {
    /// The scope.
    pub scope: String,
    /// A scope whose capacity the requests of this one use as well; the same if there is none.
    pub canonical: String,
    /// The units that have a limit, of its own or its group's.
    pub limited: Vec<String>,
    /// Its own limits, if it has some.
    pub own: Option<OwnView>,
    /// The group that it is a member of.
    pub group: Option<MemberView>,
}

/// The own limits of a scope.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct OwnView {
    /// Where they come from.
    pub source: SourceView,
    /// The limits there, by unit.
    pub units: BTreeMap<String, LimitView>,
}

/// Where the limits of a scope come from.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum SourceView {
    /// The file.
    File {
        /// The `match` that they stand under.
        r#match: String,
    },
    /// An override.
    Override {
        /// Its revision.
        revision: u64,
    },
    /// A raise.
    Raise {
        /// Its end, in seconds since 1970.
        until: u64,
    },
    /// It is the scope of a group.
    Group,
}

/// A place in a group that is divided between its members.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct MemberView {
    /// The group's name.
    pub name: String,
    /// The weight of the member's part.
    pub weight: u32,
    /// First division of the group: between `members` or `clients`.
    pub fair_between: String,
    /// The end of the raise that these limits are of, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub raised_until: Option<u64>,
    /// The limits that all members share, by unit.
    pub units: BTreeMap<String, LimitView>,
}

/// A limit. Amounts are per second, but for `concurrency`.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitView {
    /// The amount that the whole fleet may use.
    pub capacity: Amount,
    /// The capacity for the period for which it was written: `100/min`; absent if it was written as a plain number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub written: Option<String>,
    /// The amount that it may use at once after a pause.
    pub burst: Amount,
    /// The safe capacity of each client: an amount, `dynamic`, or null for its own setting.
    #[schema(value_type = Option<SafeView>)]
    pub safe: Option<SafeView>,
    /// The algorithm that divides the capacity between clients.
    pub algorithm: String,
    /// The lease duration.
    pub lease_ms: u64,
    /// The refresh interval.
    pub refresh_ms: u64,
    /// The minimum refresh interval.
    pub min_refresh_ms: u64,
    /// The time of learning mode after a start.
    pub learning_ms: u64,
    /// The part of the unwanted capacity that is leased all the same.
    #[schema(minimum = 0, maximum = 1)]
    pub headroom: f64,
    /// The part of the capacity that is kept for newcomers.
    #[schema(minimum = 0, maximum = 1)]
    pub reserve: f64,
    /// The amounts that priority bands get first, by priority.
    pub guaranteed: BTreeMap<String, Amount>,
    /// Amounts of windows beside the capacity, by the names of their periods, such as `day`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub quotas: BTreeMap<String, f64>,
}

/// Safe capacity of a client.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SafeView {
    /// A fixed amount.
    Amount(f64),
    /// The capacity divided by the known clients.
    Dynamic(DynamicWord),
}

/// `dynamic`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DynamicWord {
    /// The capacity divided by the known clients.
    Dynamic,
}

/// Limits of the file.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct LimitPage {
    /// The limits.
    pub limits: Vec<MatchView>,
    /// The value of `after` for the next page; none if this was the last.
    pub next: Option<String>,
}

/// One limit of the file.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct MatchView {
    /// The scopes that it matches.
    pub r#match: String,
    /// Its limits, by unit.
    pub units: BTreeMap<String, LimitView>,
}

/// The limits of the file: exact ids by name, then globs in order, then `*`.
#[utoipa::path(
    get, path = "/v1/limits", operation_id = "listLimits", tag = "limits", params(PageQuery),
    responses((status = 200, description = "A page", body = LimitPage), Read, BadRequest)
)]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<PageQuery>,
) -> Result<Json<LimitPage>, RestError> {
    let (limit, after) = query.checked()?;
    let catalog = app.parts.writer.catalog();
    let all = catalog.file().limits.in_order();
    let last = all.iter().position(|matched| *matched.pattern == *after);
    let rest = match last {
        Some(last) => all.get(last + 1..).unwrap_or_default(),
        None if after.is_empty() => &all[..],
        None => {
            let rule = "is the `match` of no limit, perhaps not any more";
            return Err(RestError::parameter("after", &after, rule));
        }
    };
    let limits = rest.iter().map(|matched| MatchView::from(*matched));
    let (limits, next) = page(limit, limits, |one| &one.r#match);
    Ok(Json(LimitPage { limits, next }))
}

/// Limits in force for a scope, whether it is used or not.
#[utoipa::path(
    get, path = "/v1/limits/{*scope}", operation_id = "getLimits", tag = "limits",
    params((
        "scope" = String, Path, description = "The scope; `/` may stand as it is",
        min_length = 1, max_length = 256
    )),
    responses((status = 200, description = "The limits", body = ScopeLimits), Read, BadRequest)
)]
pub(super) async fn get(
    State(app): State<App>,
    Path(scope): Path<String>,
) -> Result<Json<ScopeLimits>, RestError> {
    let id = ResourceId::new(&scope, Unit::Requests);
    let id = id.map_err(|error| RestError::parameter("scope", &scope, error))?;
    Ok(Json(app.parts.writer.catalog().resolve(&id.scope).into()))
}

// === impl ScopeLimits ===

impl From<ResolvedScope> for ScopeLimits {
    fn from(resolved: ResolvedScope) -> Self {
        let limited = resolved.limited.into_iter();
        Self {
            scope: resolved.scope.as_ref().to_owned(),
            canonical: resolved.canonical.as_ref().to_owned(),
            limited: limited.map(|unit| unit.name().to_owned()).collect(),
            own: resolved.own.map(OwnView::from),
            group: resolved.member.map(MemberView::from),
        }
    }
}

// === impl OwnView ===

impl From<OwnLimits> for OwnView {
    fn from(own: OwnLimits) -> Self {
        let text = |text: Arc<str>| text.as_ref().to_owned();
        Self {
            source: match own.source {
                LimitSource::File(pattern) => SourceView::File {
                    r#match: text(pattern),
                },
                LimitSource::Override(revision) => SourceView::Override { revision },
                LimitSource::Raise(until) => SourceView::Raise { until },
                LimitSource::Group => SourceView::Group,
            },
            units: units(&own.limits),
        }
    }
}

// === impl MemberView ===

impl From<GroupMembership> for MemberView {
    fn from(member: GroupMembership) -> Self {
        let GroupMembership { group, weight } = member;
        Self {
            name: group.name().as_ref().to_owned(),
            weight: weight.get(),
            fair_between: group.fair_between().name().to_owned(),
            raised_until: group.raised_until(),
            units: units(group.limits()),
        }
    }
}

// === impl MatchView ===

impl From<&MatchedLimits> for MatchView {
    fn from(matched: &MatchedLimits) -> Self {
        Self {
            r#match: matched.pattern.as_ref().to_owned(),
            units: units(&matched.limits),
        }
    }
}

// === impl LimitView ===

impl LimitView {
    /// Returns the view of the limit of `unit`.
    pub fn new(unit: Unit, limit: &Limit) -> Self {
        let bands =
            (0..Priority::COUNT).filter_map(|level| Priority::new(u8::try_from(level).ok()?));
        let guaranteed = bands.map(|band| (band, limit.guaranteed.of(band)));
        let guaranteed = guaranteed.filter(|(_, capacity)| capacity.as_micros() > 0);
        let capacity = Amount::of_limit(limit);
        Self {
            capacity,
            written: capacity.written(unit, limit.period),
            burst: burst(limit.burst),
            safe: match limit.safe {
                SafeCapacity::Client => None,
                SafeCapacity::Fixed(capacity) => Some(SafeView::Amount(capacity.as_f64())),
                SafeCapacity::Dynamic => Some(SafeView::Dynamic(DynamicWord::Dynamic)),
            },
            algorithm: limit.algorithm.name().to_owned(),
            lease_ms: ms(limit.lease),
            refresh_ms: ms(limit.refresh),
            min_refresh_ms: ms(limit.min_refresh),
            learning_ms: ms(limit.learning),
            headroom: part(limit.headroom),
            reserve: part(limit.reserve),
            guaranteed: guaranteed
                .map(|(band, capacity)| (band.level().to_string(), capacity.into()))
                .collect(),
            quotas: limit
                .quotas
                .iter()
                .map(|quota| (quota.period.to_string(), tokens(quota.amount)))
                .collect(),
        }
    }

    /// Returns an amount of `unit` per second for the period for which the limit was written.
    pub fn text(&self, unit: &str, amount: Amount) -> String {
        amount.text_as(unit, self.written.as_deref())
    }

    /// The quotas, such as `1000/day, 20k/month`; a dash without any.
    pub fn quota_text(&self, unit: &str) -> String {
        let quotas = self.quotas.iter();
        let texts = quotas.map(|(per, amount)| format!("{}/{per}", amount_text(unit, *amount)));
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() {
            return "-".to_owned();
        }
        texts.join(", ")
    }
}

// === free functions ===

fn units(limits: &UnitLimits) -> BTreeMap<String, LimitView> {
    let limits = limits.iter();
    limits
        .map(|(unit, limit)| (unit.name().to_owned(), LimitView::new(unit, limit)))
        .collect()
}

/// Tokens of a burst; that of no limit is none.
fn burst(tokens: Tokens) -> Amount {
    Capacity::from_micros(tokens.as_micros()).into()
}

fn part(part: Part) -> f64 {
    part.of(Capacity::from_whole(1)).as_f64()
}
