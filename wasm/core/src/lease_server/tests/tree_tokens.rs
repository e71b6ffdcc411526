//! Tokens of a root, of which clients of its leaves draw.

use std::vec::Vec;

use super::*;
use crate::lease::{DrawRequest, Origin};
use crate::lease_client::LeaseMessage;

const BOUNDS: Bounds = Bounds {
    max_resources: 8,
    max_clients_per_resource: 10,
    max_leases: 100,
    max_durable: 100_000,
};

/// A root with a limit of ten an hour, and two leaves with a client each that spends each token that it is granted.
struct Tree {
    root: LeaseServer,
    leaves: [LeaseServer; 2],
    limit: Limit,
    /// The leaves' own limit.
    own: Limit,
    now: Instant,
    /// Tokens that each client was granted, ever.
    granted: [Tokens; 2],
}

// === impl Tree ===

impl Tree {
    fn new() -> Self {
        let now = secs(1);
        let limit = Limit {
            burst: Tokens::from_whole(10),
            ..Limit::new(Capacity::from_micros(2778))
        };
        let server = || LeaseServer::new(now, Epoch(1), BOUNDS, Start::Fresh);
        let leaf = || {
            let mut leaf = server();
            leaf.borrow_from_parent(now, 1, Duration::from_millis(300));
            leaf
        };
        Self {
            root: server(),
            leaves: [leaf(), leaf()],
            limit,
            own: Limit::new(Capacity::UNLIMITED),
            now,
            granted: [Tokens::ZERO; 2],
        }
    }

    fn resource() -> ResourceId {
        ResourceId::new("tenant/acme", Unit::Requests).unwrap()
    }

    /// Tokens that the client of a leaf gets that needs so many.
    fn draw(&mut self, leaf: usize, needs: u64) -> u64 {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        let run = ClientRun::only(ClientId::new("envoy/0").unwrap());
        let draw = DrawRequest {
            account: 1,
            drawn: self.granted[leaf],
            needs: Tokens::from_whole(needs),
            first: Tokens::ONE,
            ..DrawRequest::default()
        };
        let request = LeaseRequest {
            draw: Some(draw),
            ..LeaseRequest::new(self.now.as_nanos(), Capacity::ZERO, Capacity::from_whole(1))
        };
        let terms = Terms::of(&self.own);
        let server = &mut self.leaves[leaf];
        let answer = server.handle_refresh(self.now, &run, &Self::resource(), &request, &terms);
        let Some(draw) = answer.unwrap().draw else {
            return 0;
        };
        let before = core::mem::replace(&mut self.granted[leaf], draw.granted);
        draw.granted.saturating_sub(before).whole()
    }

    fn release(&mut self, leaf: usize) {
        let run = ClientRun::only(ClientId::new("envoy/0").unwrap());
        self.leaves[leaf].handle_release(&run, &Self::resource(), u64::MAX);
        self.granted[leaf] = Tokens::ZERO;
    }

    /// Lets so many seconds pass, in which the leaves ask the root when they are to.
    fn after(&mut self, secs: u64) {
        for _ in 0..secs * 20 {
            self.now = self.now.saturating_add(Duration::from_millis(50));
            for leaf in 0..2 {
                self.leaves[leaf].handle_timeout(self.now);
                self.borrow(leaf);
            }
            self.root.handle_timeout(self.now);
        }
    }

    fn borrow(&mut self, leaf: usize) {
        let run = ClientRun {
            id: ClientId::new(&std::format!("leaf-{leaf}")).unwrap(),
            run: Run::Term(Epoch(1)),
        };
        let terms = Terms::of(&self.limit);
        for (id, message) in self.leaves[leaf].ask_parent(self.now, 8) {
            match message {
                LeaseMessage::Refresh(request) => {
                    let answer = self
                        .root
                        .handle_refresh(self.now, &run, &id, &request, &terms);
                    let source = (request.sequence, Origin::alone(Epoch(1)), 1);
                    let answer = answer.unwrap();
                    let counts =
                        self.leaves[leaf].handle_parent_answer(self.now, &id, source, &answer);
                    assert_eq!(counts, Ok(true));
                }
                LeaseMessage::Release { sequence } => self.root.handle_release(&run, &id, sequence),
                LeaseMessage::Nothing => {}
            }
        }
    }

    /// Both clients ask once a second, for a while. Returns what each got.
    fn ask_for(&mut self, secs: u64) -> [u64; 2] {
        let mut got = [0; 2];
        for _ in 0..secs {
            self.after(1);
            got[0] += self.draw(0, 1);
            got[1] += self.draw(1, 1);
        }
        got
    }
}

#[test]
fn ten_an_hour_are_ten_through_two_leaves() {
    let mut tree = Tree::new();
    let got = tree.ask_for(60);
    assert!((9..=10).contains(&got.iter().sum::<u64>()), "{got:?}");
    assert_eq!(tree.ask_for(60), [0, 0]);
}

#[test]
fn what_a_leaf_has_left_goes_back_when_nobody_asks_it() {
    let mut tree = Tree::new();
    tree.draw(0, 0);
    tree.after(1);
    assert_eq!(tree.draw(0, 1), 1);
    tree.release(0);
    tree.after(20);
    let others: Vec<_> = (0..20)
        .map(|_| {
            tree.after(1);
            tree.draw(1, 1)
        })
        .collect();
    let sum: u64 = others.iter().sum();
    assert!((8..=9).contains(&sum), "{others:?}");
}

#[test]
fn a_client_that_comes_back_to_a_leaf_finds_what_was_left() {
    let mut tree = Tree::new();
    tree.draw(0, 0);
    tree.after(1);
    assert_eq!(tree.draw(0, 4), 4);
    tree.release(0);
    tree.after(60);
    tree.draw(0, 0);
    tree.after(2);
    assert_eq!(tree.draw(0, 10).max(tree.draw(0, 6)), 6);
}

#[test]
fn a_limit_of_a_leaf_is_its_own_where_the_root_has_none() {
    let mut tree = Tree::new();
    tree.own = core::mem::replace(&mut tree.limit, tree.own.clone());
    tree.draw(0, 0);
    tree.after(1);
    assert_eq!([tree.draw(0, 6), tree.draw(0, 6)], [6, 4]);
    tree.after(5);
    tree.own.burst = Tokens::from_whole(12);
    assert_eq!(tree.draw(0, 6), 2, "a raise counts");
}

#[test]
fn a_leafs_own_burst_adds_nothing_to_what_is_borrowed() {
    let mut tree = Tree::new();
    tree.ask_for(60);
    tree.own = Limit {
        burst: Tokens::from_whole(50),
        ..tree.limit.clone()
    };
    assert_eq!(tree.ask_for(10), [0, 0]);
}
