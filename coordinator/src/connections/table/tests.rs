use super::*;
use crate::connections::call::Call;

/// A table for so many connections.
fn table(max: usize) -> ConnectionTable {
    let times = ConnectionBounds::default();
    let limits = Limits {
        listener: Door::Http,
        max,
        times,
    };
    let memory = CallMemory::new(times.max_call_bytes);
    ConnectionTable::new(limits, memory, ConnectionMetrics::default())
}

/// The next connection, from the one address there is.
fn admit(table: &ConnectionTable, now: Instant) -> Entry {
    let from = SocketAddr::from(([127, 0, 0, 1], 1));
    table.admit(from, false, now).unwrap()
}

fn is_regular(entry: &Entry) -> bool {
    has_place(entry) && !entry.activity().is_for_probes()
}

fn has_place(entry: &Entry) -> bool {
    entry.table.open().connections.contains_key(&entry.number)
}

fn begin(entry: &Entry, probe: bool) -> Result<Arc<Call>, String> {
    let call = Call::begin(entry.table(), entry.activity(), 1, probe);
    call.map_err(|refusal| refusal.to_string())
}

#[test]
fn the_time_before_the_first_answer_counts_sixteen_times() {
    let second = Duration::from_secs(1);
    for (waited, is_in_the_way) in [(second * 9 / 10, false), (second * 11 / 10, true)] {
        let (table, now) = (table(2), Instant::now());
        let answered = admit(&table, now);
        answered.activity().answered();
        let now = now + 16 * second;
        let unanswered = admit(&table, now - waited);
        let newcomer = admit(&table, now);
        assert!(is_regular(&newcomer));
        assert_eq!(is_regular(&unanswered), !is_in_the_way, "after {waited:?}");
        assert_eq!(is_regular(&answered), is_in_the_way, "after {waited:?}");
    }
}

#[test]
fn a_connection_that_made_room_before_it_could_ask_is_kept_for_a_probe() {
    let (table, now) = (table(2), Instant::now());
    let working = admit(&table, now);
    working.activity().begin_work();
    let probe = admit(&table, now);
    let newcomer = admit(&table, now);
    assert!(is_regular(&working) && is_regular(&newcomer));
    assert!(has_place(&probe) && !is_regular(&probe));
    assert!(begin(&probe, true).is_ok());
    assert!(begin(&probe, false).unwrap_err().contains("health checks"));
    assert!(begin(&newcomer, false).is_ok());
}

#[test]
fn the_places_for_probes_are_bounded_and_the_longest_waiting_there_go_first() {
    let (table, start) = (table(64), Instant::now());
    let count = 64 + PROBE_PLACES + 3;
    let entries: Vec<_> = (0..count)
        .map(|number| admit(&table, start + Duration::from_millis(number as u64)))
        .collect();
    let open = entries.iter().filter(|entry| has_place(entry)).count();
    assert_eq!(open, 64 + PROBE_PLACES);
    assert!(entries[..3].iter().all(|entry| !has_place(entry)));
    assert_eq!(table.open().probes, PROBE_PLACES);
    drop(entries);
    assert_eq!(table.open().probes, 0);
}
