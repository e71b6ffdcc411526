//! Splits a call by shard, and joins the answers.

use std::collections::BTreeMap;

use tokio::task::JoinSet;
use tollgate_core::cluster::ShardId;

use super::RouteError;

/// The entries of a call for one shard, and their places in the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallPart<T> {
    pub(super) places: Vec<usize>,
    pub(super) entries: Vec<T>,
}

/// The places of each part of a call, with its result.
pub type PartResults<R> = Vec<(Vec<usize>, Result<R, RouteError>)>;

/// The answers to a call so far.
#[derive(Debug)]
pub(super) struct JoinedAnswers<R>(Vec<Option<R>>);

// === impl JoinedAnswers ===

impl<R> JoinedAnswers<R> {
    /// No answers yet, with `count` places.
    pub(super) fn of(count: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(count).collect())
    }

    /// Puts the answers of one shard where its entries were; answers without a place are dropped.
    pub(super) fn put(&mut self, places: &[usize], answers: impl IntoIterator<Item = R>) {
        for (place, answer) in places.iter().zip(answers) {
            if let Some(open) = self.0.get_mut(*place) {
                *open = Some(answer);
            }
        }
    }

    /// All answers in the order of the call, with `missing` for each empty place.
    pub(super) fn end(self, mut missing: impl FnMut(usize) -> R) -> Vec<R> {
        let places = self.0.into_iter().enumerate();
        places
            .map(|(place, answer)| answer.unwrap_or_else(|| missing(place)))
            .collect()
    }
}

// === free functions ===

/// Splits `entries` by shard, each part in the order of the call.
pub(super) fn split<T>(
    entries: Vec<T>,
    shard: impl Fn(&T) -> ShardId,
) -> Vec<(ShardId, CallPart<T>)> {
    let mut parts = BTreeMap::new();
    for (place, entry) in entries.into_iter().enumerate() {
        let part = parts.entry(shard(&entry)).or_insert_with(|| CallPart {
            places: Vec::new(),
            entries: Vec::new(),
        });
        part.places.push(place);
        part.entries.push(entry);
    }
    parts.into_iter().collect()
}

/// Calls `ask` for all parts at once; returns each result with the places of its part.
pub(super) async fn each<T, R, F>(
    parts: Vec<(ShardId, CallPart<T>)>,
    ask: impl Fn(ShardId, Vec<T>) -> F,
) -> PartResults<R>
where
    R: Send + 'static,
    F: Future<Output = Result<R, RouteError>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    let mut answers = Vec::with_capacity(parts.len());
    let alone = parts.len() == 1;
    for (shard, CallPart { places, entries }) in parts {
        let answer = ask(shard, entries);
        if alone {
            answers.push((places, answer.await));
            continue;
        }
        calls.spawn(async move { (places, answer.await) });
    }
    while let Some(answer) = calls.join_next().await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => tracing::error!(%error, "router: part of a call failed"),
        }
    }
    answers
}

/// The answers of the parts that were answered.
///
/// # Errors
/// That of a part, if none was answered.
pub fn answered<A>(results: PartResults<A>) -> Result<Vec<A>, RouteError> {
    let mut answers = Vec::with_capacity(results.len());
    let mut reason = None;
    for (_, result) in results {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) => reason = Some(error),
        }
    }
    match reason {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_is_missing_and_what_was_not_asked_is_dropped() {
        let mut joined = JoinedAnswers::of(4);
        joined.put(&[2, 0], ["c", "a", "too many"]);
        joined.put(&[1, 3, 9], ["b"]);
        let whole = joined.end(|place| ["", "", "", "none"][place]);
        assert_eq!(whole, ["a", "b", "c", "none"]);
    }

    #[test]
    fn parts_together_are_the_call() {
        for count in 0..50_u16 {
            let entries: Vec<u16> = (0..count).map(|i| i.wrapping_mul(7919) % 1000).collect();
            let shard = |entry: &u16| ShardId(entry % 5);
            let mut joined = JoinedAnswers::of(entries.len());
            for (of, part) in split(entries.clone(), shard) {
                assert!(part.entries.iter().all(|entry| shard(entry) == of));
                assert!(part.places.is_sorted());
                joined.put(&part.places, part.entries);
            }
            assert_eq!(joined.end(|_| u16::MAX), entries);
        }
    }
}
