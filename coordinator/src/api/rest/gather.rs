//! One answer out of several: what each shard and each node says of its books.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::App;
use super::extract::ENTRIES_MAX;
use super::others::Asked;
use super::problem::RestError;

/// What has been said of the books.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    /// By this node's shards first.
    pub(super) answers: Vec<Value>,
    /// The nodes that did not answer.
    unanswered: Vec<String>,
}

// === impl Gathered ===

impl Gathered {
    /// What this node says, `own`, and what the others answer to `asked`.
    ///
    /// # Errors
    /// If something cannot be written as JSON, which is a bug.
    pub(super) async fn of<T: Serialize>(
        app: &App,
        asked: &Asked,
        own: Vec<T>,
    ) -> Result<Self, RestError> {
        let mut answers = values(own)?;
        let mut unanswered = Vec::new();
        if let Some(others) = &app.others {
            let said = others.ask(asked).await;
            let there = said.answers.into_iter().map(|(_, answer)| answer);
            answers.extend(there.filter(|answer| !answer.is_null()));
            unanswered = said.unanswered;
        }
        Ok(Self {
            answers,
            unanswered,
        })
    }

    /// Nothing, if everybody has answered.
    ///
    /// # Errors
    /// Says who has not.
    pub(super) fn whole(self) -> Result<(), RestError> {
        match self.unanswered.is_empty() {
            true => Ok(()),
            false => Err(RestError::Unanswered(self.unanswered)),
        }
    }

    /// All answers as one, made by `join`; none if there are none.
    pub(super) fn one(self, join: fn(&mut Value, Value)) -> Option<Value> {
        let one = self.answers.into_iter().reduce(|mut one, other| {
            join(&mut one, other);
            one
        });
        one.map(|one| said(one, self.unanswered))
    }

    /// All pages as one; see [`page`].
    pub(super) fn page(self, of: (&str, &str), limit: usize, join: fn(&mut Value, Value)) -> Value {
        said(page(self.answers, of, limit, join), self.unanswered)
    }
}

// === free functions ===

/// `answer`, and who has not answered if that is somebody.
fn said(mut answer: Value, unanswered: Vec<String>) -> Value {
    if !unanswered.is_empty() {
        answer["unanswered"] = unanswered.into();
    }
    answer
}

/// Adds up the counts of a client's entries in two lists.
pub(super) fn join_counts(one: &mut Value, other: Value) {
    for field in ["resource_count", "waiting_count"] {
        let sum = one[field].as_u64().unwrap_or(0) + other[field].as_u64().unwrap_or(0);
        one[field] = sum.into();
    }
}

/// Adds the leases of a client at another node.
pub(super) fn join_leases(one: &mut Value, mut other: Value) {
    let count = |detail: &Value| detail["lease_count"].as_u64().unwrap_or(0);
    one["lease_count"] = (count(one) + count(&other)).into();
    one["drained_for_ms"] = match (
        one["drained_for_ms"].as_u64(),
        other["drained_for_ms"].as_u64(),
    ) {
        (Some(a), Some(b)) => a.max(b).into(),
        (a, b) => a.or(b).into(),
    };
    if let (Some(leases), Value::Array(more)) =
        (one["leases"].as_array_mut(), other["leases"].take())
    {
        leases.extend(more);
        let place = |lease: &Value| {
            let text = |field: &str| lease[field].as_str().unwrap_or_default().to_owned();
            (text("scope"), text("unit"))
        };
        leases.sort_by_cached_key(place);
        leases.truncate(ENTRIES_MAX);
    }
}

/// `answers` as JSON.
///
/// # Errors
/// If one cannot be written, which is a bug.
fn values<T: Serialize>(answers: Vec<T>) -> Result<Vec<Value>, RestError> {
    let values = answers.into_iter().map(serde_json::to_value);
    let values: Result<_, _> = values.collect();
    values.map_err(|_| RestError::Text("the books"))
}

/// The first `limit` entries of the lists `list` in `pages`, each with its first entries in the
/// order of their field `key`. Entries of the same key are made one by `join`.
fn page(
    pages: Vec<Value>,
    (list, key): (&str, &str),
    limit: usize,
    join: fn(&mut Value, Value),
) -> Value {
    let mut more = false;
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    for mut page in pages {
        more |= !page["next"].is_null();
        let Value::Array(found) = page[list].take() else {
            continue;
        };
        for entry in found {
            let name = entry[key].as_str().unwrap_or_default().to_owned();
            match entries.get_mut(&name) {
                Some(one) => join(one, entry),
                None => drop(entries.insert(name, entry)),
            }
        }
    }
    more |= entries.len() > limit;
    let first: Vec<(String, Value)> = entries.into_iter().take(limit).collect();
    let last = first.last().map(|(name, _)| name.clone());
    let next = last.filter(|_| more).map_or(Value::Null, Value::String);
    let first: Vec<Value> = first.into_iter().map(|(_, entry)| entry).collect();
    let mut whole = serde_json::Map::new();
    whole.insert(list.to_owned(), Value::Array(first));
    whole.insert("next".to_owned(), next);
    Value::Object(whole)
}

/// Adds to `one` the units that only `other` has: a scope that has just moved is in two books.
pub(super) fn join_units(one: &mut Value, mut other: Value) {
    let (Some(units), Value::Object(others)) =
        (one["units"].as_object_mut(), other["units"].take())
    else {
        return;
    };
    for (name, unit) in others {
        units.entry(name).or_insert(unit);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scopes(names: &[&str], next: Option<&str>) -> Value {
        let scope = |name: &&str| json!({"scope": name, "units": {}});
        let scopes: Vec<Value> = names.iter().map(scope).collect();
        json!({"scopes": scopes, "next": next})
    }

    #[test]
    fn pages_become_one_page() {
        let rows = [
            (vec![], 2, scopes(&[], None)),
            (
                vec![scopes(&["b"], None), scopes(&["a"], None)],
                2,
                scopes(&["a", "b"], None),
            ),
            (
                vec![scopes(&["b", "c"], None), scopes(&["a"], None)],
                2,
                scopes(&["a", "b"], Some("b")),
            ),
            (
                vec![scopes(&["a", "d"], Some("d")), scopes(&["a"], None)],
                2,
                scopes(&["a", "d"], Some("d")),
            ),
        ];
        for (pages, limit, want) in rows {
            assert_eq!(page(pages, ("scopes", "scope"), limit, join_units), want);
        }
    }

    #[test]
    fn a_scope_in_two_books_has_the_units_of_both() {
        let mut one = json!({"scope": "a", "units": {"requests": 1}});
        join_units(
            &mut one,
            json!({"scope": "a", "units": {"requests": 2, "concurrency": 3}}),
        );
        assert_eq!(
            one,
            json!({"scope": "a", "units": {"requests": 1, "concurrency": 3}})
        );
    }
}
