//! Throttled clients of a resource: those that got less than they want at their last refresh.

use std::cmp::Reverse;

use tollgate_core::resource::{ClientRecord, Resource};
use tollgate_core::units::Instant;

use super::ms;

/// Number of clients that got less than they want at their last refresh.
///
/// That is not the same as those that have less than they want: one that has to give back a part of
/// its lease has it until it acknowledges that.
pub(crate) fn waiting(resource: &Resource) -> usize {
    resource.clients().filter(is_throttled).count()
}

/// Whether `client` got less than it wants at its last refresh.
pub(crate) fn is_throttled(client: &ClientRecord<'_>) -> bool {
    client.throttled_since.is_some()
}

/// The longest time for which a client has got less than it wants.
pub(super) fn longest_throttled(resource: &Resource, now: Instant) -> Option<u64> {
    let since = resource
        .clients()
        .filter_map(|client| client.throttled_since);
    since.map(|since| ms(since.elapsed(now))).max()
}

/// Returns at most `max` clients of `resource`, in its order: those that have been throttled for
/// longest, then those with the largest leases.
pub(super) fn first_throttled(
    resource: &Resource,
    now: Instant,
    max: usize,
) -> Vec<ClientRecord<'_>> {
    let mut first: Vec<(usize, ClientRecord<'_>)> = Vec::new();
    let cut = |first: &mut Vec<(usize, ClientRecord<'_>)>| {
        if first.len() > max {
            first.select_nth_unstable_by_key(max, |(place, client)| {
                let time = client.throttled_since.map(|since| since.elapsed(now));
                (Reverse((time, client.has)), *place)
            });
            first.truncate(max);
        }
    };
    for client in resource.clients().enumerate() {
        first.push(client);
        // So the memory is bounded, and the work is in proportion to the number of clients.
        if first.len() / 2 >= max {
            cut(&mut first);
        }
    }
    cut(&mut first);
    first.sort_unstable_by_key(|(place, _)| *place);
    first.into_iter().map(|(_, client)| client).collect()
}
