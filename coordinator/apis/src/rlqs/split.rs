//! Division of one lease between the buckets of a proxy that share a scope.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use tollgate_core::share::FairShare;
use tollgate_core::units::Capacity;

/// Returns the part of `capacity` of each bucket, by what each wants: max-min, and what none wants
/// is spread over all that want something. The parts sum to `capacity` at most.
pub(super) fn split(capacity: Capacity, wants: &[(u64, Capacity)]) -> BTreeMap<u64, Capacity> {
    if wants.len() <= 1 || capacity.is_unlimited() {
        return wants
            .iter()
            .map(|(bucket, _)| (*bucket, capacity))
            .collect();
    }
    let mut shares = FairShare::new();
    let handles: Vec<_> = wants
        .iter()
        .map(|(bucket, wants)| (*bucket, shares.insert(*bucket, *wants, NonZeroU32::MIN)))
        .collect();
    let spare = capacity.left_of(shares.sum_wants());
    let part = |(bucket, handle): &(u64, _)| {
        let part = shares.share(handle, capacity);
        (*bucket, part.saturating_add(shares.spare(handle, spare)))
    };
    handles.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_fair_and_never_more_than_there_is() {
        let whole = Capacity::from_whole;
        let rows: [(u64, &[u64], &[u64]); 5] = [
            (100, &[7], &[100]),
            (100, &[10, 200], &[10, 90]),
            (100, &[200, 200], &[50, 50]),
            (100, &[10, 30], &[40, 60]),
            (0, &[10, 30], &[0, 0]),
        ];
        for (capacity, wants, parts) in rows {
            let wants: Vec<_> = (0..).zip(wants.iter().map(|wants| whole(*wants))).collect();
            let split = split(whole(capacity), &wants);
            let want: Vec<_> = parts.iter().map(|part| whole(*part)).collect();
            assert_eq!(split.values().copied().collect::<Vec<_>>(), want);
        }
        let odd = [(1, whole(9)), (2, whole(9)), (3, whole(9))];
        let parts = split(whole(10), &odd);
        let sum = parts.values().map(|part| part.as_micros()).sum::<u64>();
        assert_eq!(sum, whole(10).as_micros());
        let all = split(Capacity::UNLIMITED, &odd);
        assert!(all.values().all(|part| part.is_unlimited()));
    }
}
