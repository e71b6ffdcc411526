//! The stream of nudges: its bytes, its root context, and its metrics.

use super::*;

impl Proxy {
    /// Ticks in a root context.
    fn tick_in(&mut self, root: u32) {
        self.host().select(root).unwrap();
        self.worker.enter_root(root);
        self.of("acme");
        self.host().select(root).unwrap();
        self.tick(TICK);
        self.answer(100.0);
    }

    /// Returns the tokens of the streams that are open, with their root contexts.
    fn streams(&self) -> Vec<(u32, u32)> {
        let streams = self.process().streams.borrow();
        streams.iter().map(|(t, (root, _))| (*t, *root)).collect()
    }

    /// Returns the root context of the only stream that is open.
    fn watching_root(&self) -> Option<u32> {
        let streams = self.streams();
        assert!(streams.len() <= 1, "{streams:?}");
        streams.first().map(|(_, root)| *root)
    }

    /// Hands over a message on the only stream.
    fn message(&mut self, message: &[u8]) {
        let (token, _) = self.streams()[0];
        self.worker.handle_nudge(token, message);
    }
}

/// A proxy that has a lease for acme, and a stream.
fn watching() -> Proxy {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.lease("acme", 100.0);
    proxy.host().select(0).unwrap();
    proxy.tick(TICK);
    proxy.answer(100.0);
    proxy
}

fn nudge(client_id: &str, scope: &str) -> Vec<u8> {
    let resources = vec![v1::NudgedResource {
        scope: scope.to_owned(),
        unit: number::from_unit(Unit::Requests),
    }];
    let client_id = client_id.to_owned();
    let response = v1::WatchResponse {
        client_id,
        resources,
    };
    response.encode_to_vec()
}

#[test]
fn the_stream_names_the_client_and_its_run() {
    let mut proxy = Proxy::new(&one_rule(""));
    assert_eq!(proxy.of("acme"), Decision::Hold);
    proxy.tick(Duration::from_millis(1));
    let (token, call) = proxy.process().take_call().unwrap();
    let refresh = call.refresh();
    proxy.worker.handle_answer(token, &call.lend(100.0));
    proxy.tick(TICK);
    let streams = proxy.process().streams.borrow().clone();
    let (_, (_, stream)) = streams.first_key_value().unwrap();
    assert_eq!((stream.to.as_str(), stream.method.as_str()), ("c", "Watch"));
    let watch = v1::WatchRequest::decode(&stream.message[..]).unwrap();
    assert_eq!(watch.client_id, refresh.client_id);
    assert_eq!(watch.incarnation, refresh.incarnation);
    assert_eq!((streams.len(), watch.term), (1, 0));
}

#[test]
fn a_message_makes_a_call_at_once_and_is_counted() {
    let mut proxy = watching();
    proxy.message(&nudge("", "tenant/acme"));
    let (_, call) = proxy.process().take_call().expect("a call");
    assert_eq!(call.refresh().scopes[0].scope, "tenant/acme");
    proxy.tick(TICK);
    assert_eq!(proxy.metric("nudges"), 1);
    assert_eq!(proxy.metric("watches"), 1);
    assert_eq!(proxy.metric("watch_streams"), 1);
}

#[test]
fn a_message_that_cannot_be_used_is_counted_and_nothing_else() {
    let mut proxy = watching();
    let empty = v1::WatchResponse::default().encode_to_vec();
    let messages = [
        vec![0xff; 3],
        empty,
        nudge("", ""),
        nudge("node/another", "tenant/acme"),
    ];
    for message in messages {
        proxy.message(&message);
    }
    proxy.tick(TICK);
    assert!(proxy.process().take_call().is_none());
    assert_eq!(
        (proxy.metric("nudges"), proxy.metric("nudge_errors")),
        (0, 4)
    );
    assert_eq!(proxy.metric("watch_streams"), 1);
}

#[test]
fn a_stream_that_ends_is_told_to_nobody_but_the_gauge() {
    let mut proxy = watching();
    let (token, _) = proxy.streams()[0];
    proxy.process().streams.borrow_mut().clear();
    proxy.worker.handle_watch_end(token, 14);
    proxy.worker.handle_nudge(token, &nudge("", "tenant/acme"));
    proxy.tick(TICK);
    assert!(proxy.process().take_call().is_none(), "it came too late");
    assert_eq!(proxy.metric("watch_streams"), 0);
    assert_eq!(proxy.metric("refresh_errors"), 0);
}

#[test]
fn the_latest_root_context_has_the_stream_and_hands_it_back_when_it_goes() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.worker.add_root(1);
    for _ in 0..5 {
        proxy.tick_in(1);
    }
    assert_eq!(proxy.watching_root(), Some(1));
    // A new configuration: the old root ticks on while its connections drain.
    proxy.worker.add_root(2);
    proxy.tick_in(1);
    assert_eq!(proxy.watching_root(), Some(1));
    proxy.tick_in(2);
    assert_eq!(proxy.watching_root(), Some(2));
    for _ in 0..5 {
        proxy.tick_in(1);
        proxy.tick_in(2);
    }
    assert_eq!(proxy.watching_root(), Some(2));
    // Another listener's root goes, with the stream.
    proxy.host().select(2).unwrap();
    proxy.worker.remove_root(2);
    assert_eq!(proxy.watching_root(), None);
    proxy.tick_in(1);
    assert_eq!(proxy.watching_root(), Some(1));
    // The old one goes without having it.
    proxy.worker.add_root(3);
    proxy.tick_in(3);
    proxy.host().select(1).unwrap();
    proxy.worker.remove_root(1);
    assert_eq!(proxy.watching_root(), Some(3));
}

#[test]
fn a_root_that_has_gone_has_taken_its_stream_along() {
    let mut proxy = Proxy::new(&one_rule(""));
    proxy.worker.add_root(1);
    proxy.tick_in(1);
    proxy.tick_in(1);
    assert_eq!(proxy.watching_root(), Some(1));
    // Envoy cancels it without a word.
    proxy.process().streams.borrow_mut().clear();
    proxy.host().gone.borrow_mut().push(1);
    proxy.worker.add_root(2);
    proxy.tick_in(2);
    assert_eq!(proxy.watching_root(), Some(2));
}
