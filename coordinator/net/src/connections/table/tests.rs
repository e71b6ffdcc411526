use super::*;
use crate::connections::call::Call;
use crate::connections::framing::MessageProgress;
use crate::connections::memory::CALL_LEN;

/// A table for so many connections.
fn table(max: usize) -> Arc<ConnectionTable> {
    let bytes = ConnectionBounds::default().max_call_bytes;
    table_with(max, CallMemory::new(bytes))
}

fn table_with(max: usize, memory: CallMemory) -> Arc<ConnectionTable> {
    table_of(Listener::Http, max, memory)
}

fn table_of(listener: Listener, max: usize, memory: CallMemory) -> Arc<ConnectionTable> {
    let times = ConnectionBounds::default();
    let limits = ListenerLimits {
        listener,
        max,
        times,
    };
    Arc::new(ConnectionTable::new(
        limits,
        memory,
        ConnectionMetrics::default(),
    ))
}

/// The next connection, from the one address there is.
fn admit(table: &Arc<ConnectionTable>, now: Instant) -> ConnectionEntry {
    admit_from(table, 1, now)
}

/// The next connection, from one of several addresses.
fn admit_from(table: &Arc<ConnectionTable>, source: u8, now: Instant) -> ConnectionEntry {
    let from = SocketAddr::from(([127, 0, 0, source], 1));
    table.admit(from, false, now).unwrap()
}

fn is_regular(entry: &ConnectionEntry) -> bool {
    has_place(entry) && !entry.activity.is_for_probes()
}

fn has_place(entry: &ConnectionEntry) -> bool {
    entry.table.open().connections.contains_key(&entry.number)
}

fn begin(entry: &ConnectionEntry, probe: bool) -> Result<Arc<Call>, String> {
    let call = Call::begin(&entry.table, &entry.activity, 1, probe);
    call.map_err(|refusal| refusal.to_string())
}

#[test]
fn the_time_before_the_first_answer_counts_sixteen_times() {
    let second = Duration::from_secs(1);
    for (waited, is_in_the_way) in [(second * 9 / 10, false), (second * 11 / 10, true)] {
        let (table, now) = (table(2), Instant::now());
        let answered = admit(&table, now);
        answered.activity.answered();
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
    working.activity.begin_answer(now);
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

/// A full table of 64: two idle Envoys, which were answered, and then a source that has the rest of
/// the places, all being worked on.
fn crowded(
    now: Instant,
) -> (
    Arc<ConnectionTable>,
    Vec<ConnectionEntry>,
    Vec<ConnectionEntry>,
) {
    let table = table(64);
    let envoys: Vec<_> = (2..4).map(|n| admit_from(&table, n, now)).collect();
    envoys.iter().for_each(|envoy| envoy.activity.answered());
    let crowd = (2..64).map(|n| {
        let entry = admit_from(&table, 1, now);
        entry.activity.answered();
        entry
            .activity
            .begin_answer(now + Duration::from_millis(64 - n));
        entry
    });
    let crowd = crowd.collect();
    (table, envoys, crowd)
}

#[test]
fn a_source_that_crowds_a_table_with_calls_loses_its_own_places_to_others() {
    let start = Instant::now();
    let (table, envoys, crowd) = crowded(start);
    let now = start + Duration::from_secs(60);
    // One of its connections is not being worked on any more, though only for a moment.
    crowd[30].activity.end_answer(now);
    let first = admit_from(&table, 4, now);
    assert!(is_regular(&first));
    assert!(!has_place(&crowd[30]), "the one without a call goes first");
    first.activity.answered();
    let second = admit_from(&table, 5, now);
    assert!(is_regular(&second) && is_regular(&first));
    assert!(
        !has_place(&crowd[61]),
        "then the one with calls for longest"
    );
    assert_eq!(crowd.iter().filter(|entry| has_place(entry)).count(), 60);
    assert!(envoys.iter().all(is_regular));
}

#[test]
fn a_source_that_crowds_a_table_takes_no_place_of_others() {
    let start = Instant::now();
    let (table, envoys, crowd) = crowded(start);
    let now = start + Duration::from_secs(60);
    let more = admit_from(&table, 1, now);
    assert!(more.activity.is_for_probes());
    assert!(crowd.iter().all(is_regular), "nor one of its own calls");
    crowd[30].activity.end_answer(now);
    let more = admit_from(&table, 1, now);
    assert!(is_regular(&more) && !has_place(&crowd[30]));
    assert!(envoys.iter().all(is_regular));
}

#[test]
fn a_source_with_a_quarter_of_the_places_keeps_those_that_are_worked_on() {
    let (table, now) = (table(8), Instant::now());
    let entries: Vec<_> = (0..8).map(|n| admit_from(&table, 1 + n / 2, now)).collect();
    for entry in &entries {
        entry.activity.begin_answer(now);
    }
    let newcomer = admit_from(&table, 9, now);
    assert!(newcomer.activity.is_for_probes());
    assert!(entries.iter().all(is_regular));
}

#[test]
fn a_probe_is_let_past_the_bounds_of_memory_only_while_it_is_small() {
    let (memory, now) = (CallMemory::new(100), Instant::now());
    let table = table_with(8, memory.clone());
    let entry = admit(&table, now);
    assert!(memory.take(100, 1));
    assert!(begin(&entry, false).is_err());
    let probe = begin(&entry, true).unwrap();
    probe.receive(4095, MessageProgress::default()).unwrap();
    let refusal = probe
        .receive(1, MessageProgress::default())
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("health check"), "{refusal}");
    drop(probe);
    // Neither many of them nor one with a large header.
    let probe = begin(&entry, true).unwrap();
    probe.receive(4000, MessageProgress::default()).unwrap();
    let second = begin(&entry, true).unwrap();
    assert!(second.receive(1000, MessageProgress::default()).is_err());
    drop((probe, second));
    let call = Call::begin(&table, &entry.activity, 5000, true);
    assert!(call.is_err());
    assert_eq!(memory.bytes(), 100);
}

#[test]
fn an_answer_for_which_there_is_no_memory_is_given_up() {
    let max = 8 * CALL_LEN;
    for (listener, gives_up) in [(Listener::Grpc, true), (Listener::Http, false)] {
        let (memory, now) = (CallMemory::new(max), Instant::now());
        let entry = admit(&table_of(listener, 8, memory.clone()), now);
        let (call, probe) = (begin(&entry, false).unwrap(), begin(&entry, true).unwrap());
        call.received();
        call.answered();
        let sent = call.charge(9).unwrap();
        let others = max - memory.bytes();
        assert!(memory.take(others, 1));
        assert_eq!(call.charge(1).is_err(), gives_up);
        assert!(probe.charge(1).is_ok());
        // Answers that are given up are not counted, and neither are those that were sent.
        drop(sent);
        memory.give_back(others);
        assert_eq!(memory.bytes(), CALL_LEN + 1, "the probe's");
        drop((call, probe));
        assert_eq!(memory.bytes(), 0);
    }
}

#[tokio::test]
async fn a_silent_client_is_asked_to_leave_before_it_is_cut_off() {
    let (table, now) = (table(8), Instant::now());
    let entry = admit(&table, now);
    entry.activity.connected(now);
    entry.activity.begin_call();
    entry.activity.answered();
    let later = now + ConnectionBounds::default().idle_timeout;
    table.sweep(later);
    assert!(!has_place(&entry));
    entry.activity.closing().await;
    let cut = tokio::time::timeout(Duration::ZERO, entry.activity.cut_off()).await;
    assert!(cut.is_err(), "it may read that it is to leave");
    table.sweep(later + CLOSING_TIME);
    entry.activity.cut_off().await;
}
