//! `tollgate check --scope`: the limits that a configuration gives to one scope.

use std::path::Path;

use serde::Serialize;
use tollgate_admin::view::LimitView;
use tollgate_config::catalog::{Catalog, LimitSource};
use tollgate_config::{Config, HoldingLimits, LimitOrigin, ScopeExplanation};
use tollgate_core::lease::{ResourceId, Unit};
use tollgate_core::limit::Limit;

use crate::failure::Failure;
use crate::print;

/// Matches that are named although another one decides.
const OTHERS_MAX: usize = 3;

/// The limits of a scope, for programs.
#[derive(Debug, Serialize)]
struct ScopeReport {
    file: String,
    scope: String,
    limits: Vec<UnitAnswer>,
}

/// A limit of one unit; of several of a unit, all hold.
#[derive(Debug, Serialize)]
struct UnitAnswer {
    unit: &'static str,
    /// The limit; null if the unit has none.
    limit: Option<LimitView>,
    from: Origin,
    why: String,
}

/// Origin of a limit, in the API's words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
enum Origin {
    File { r#match: String },
    Override { revision: u64 },
    Group { name: String },
    Default,
}

// === impl Origin ===

impl Origin {
    fn of(held: &HoldingLimits) -> Self {
        match &held.origin {
            LimitOrigin::Own(LimitSource::File(pattern)) => Self::File {
                r#match: pattern.to_string(),
            },
            LimitOrigin::Own(LimitSource::Override(revision)) => Self::Override {
                revision: *revision,
            },
            // A file has no raises; they are written through the API, too.
            LimitOrigin::Own(LimitSource::Group | LimitSource::Raise(_))
            | LimitOrigin::Group { .. } => Self::Group {
                name: held
                    .scope
                    .strip_prefix("group/")
                    .unwrap_or(&held.scope)
                    .to_owned(),
            },
        }
    }

    fn text(&self) -> String {
        match self {
            Self::File { r#match } => format!("match {}", r#match),
            Self::Override { revision } => format!("override, revision {revision}"),
            Self::Group { name } => format!("group {name}"),
            Self::Default => "default".to_owned(),
        }
    }
}

// === free functions ===

/// Prints the limits that `config`, read from `file`, gives to the scope called `scope`.
pub(super) fn show(file: &Path, config: &Config, scope: &str, json: bool) -> Result<(), Failure> {
    let id = ResourceId::new(scope, Unit::Requests);
    let id = id.map_err(|error| Failure::usage(anyhow::anyhow!("--scope {scope:?}: {error}")))?;
    if config.shares() {
        let rule = "the limits are in etcd: `tollgate get limit` asks a coordinator";
        return Err(Failure::usage(anyhow::anyhow!(
            "{}: {rule}",
            file.display()
        )));
    }
    let catalog = Catalog::new(config.catalog.clone());
    let explanation = ScopeExplanation::new(&catalog, &id.scope);
    let limits: Vec<_> = Unit::ALL
        .into_iter()
        .flat_map(|unit| answers(&explanation, unit))
        .collect();
    if json {
        return print::json(&ScopeReport {
            file: file.display().to_string(),
            scope: scope.to_owned(),
            limits,
        });
    }
    print::table(
        "UNIT|LIMIT|BURST|FROM|WHY",
        limits.iter().map(row).collect(),
    )
}

/// All limits of `unit`, or the reason for which it has none.
fn answers(explanation: &ScopeExplanation, unit: Unit) -> Vec<UnitAnswer> {
    let answer = |(held, limit): (&HoldingLimits, &Limit)| UnitAnswer {
        unit: unit.name(),
        limit: Some(LimitView::new(unit, limit)),
        from: Origin::of(held),
        why: why(explanation, held),
    };
    let mut answers: Vec<_> = explanation.of_unit(unit).map(answer).collect();
    if answers.is_empty() {
        answers.push(UnitAnswer {
            unit: unit.name(),
            limit: None,
            from: Origin::Default,
            why: why_none(explanation, unit),
        });
    }
    answers
}

/// The reason for which `held` holds.
fn why(explanation: &ScopeExplanation, held: &HoldingLimits) -> String {
    let scope = &explanation.scope;
    match &held.origin {
        LimitOrigin::Group { weight, .. } => match weight {
            Some(weight) => format!("divided between the group's members; weight {weight}"),
            None => "all members of the group use it together".to_owned(),
        },
        LimitOrigin::Own(_) if held.scope != *scope => {
            format!("requests of {scope} count for {}, too", held.scope)
        }
        LimitOrigin::Own(LimitSource::Override(_) | LimitSource::Raise(_)) => {
            "written through the API".to_owned()
        }
        LimitOrigin::Own(LimitSource::Group) => "it is the group's own scope".to_owned(),
        LimitOrigin::Own(LimitSource::File(pattern)) => {
            let why = match &**pattern {
                "*" => "no other limit matches",
                exact if *exact == **scope => "names it",
                _ => "the first pattern that matches",
            };
            format!("{why}{}", others(explanation))
        }
    }
}

/// The matches behind the one that decides.
fn others(explanation: &ScopeExplanation) -> String {
    let others = explanation.matches.get(1..).unwrap_or_default();
    let named: Vec<&str> = others.iter().take(OTHERS_MAX).map(AsRef::as_ref).collect();
    let more = if others.len() > OTHERS_MAX {
        " …"
    } else {
        ""
    };
    if named.is_empty() {
        String::new()
    } else {
        format!("; comes before {}{more}", named.join(", "))
    }
}

/// The reason for which `unit` has no limit.
fn why_none(explanation: &ScopeExplanation, unit: Unit) -> String {
    let Some(held) = explanation.limits.first() else {
        return "no limit matches".to_owned();
    };
    let from = Origin::of(held).text();
    match held.limits.get(unit) {
        Some(_) => format!("{from} says unlimited"),
        None => format!("{from} decides for all units and does not name this one"),
    }
}

fn row(answer: &UnitAnswer) -> Vec<String> {
    let UnitAnswer {
        unit,
        limit,
        from,
        why,
        ..
    } = answer;
    let burst = limit.as_ref().filter(|_| *unit != Unit::Concurrency.name());
    vec![
        (*unit).to_owned(),
        limit.as_ref().map_or_else(
            || "unlimited".to_owned(),
            |limit| limit.text(unit, limit.capacity),
        ),
        print::or_dash(burst.map(|limit| limit.burst.text(unit))),
        from.text(),
        why.clone(),
    ]
}
