//! Places of Envoys and coordinators in the network, and the cuts between them.

use std::time::Duration;

use tollgate_core::units::Instant;

use crate::random::Random;
use crate::scenario::{Direction, NetworkSpec};

/// Time after which TCP sends again what was lost.
const SENT_AGAIN: Duration = Duration::from_millis(200);

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The Envoy at an index.
    Envoy(usize),
    /// The coordinator at an index.
    Coordinator(usize),
}

/// Network of a simulation.
#[derive(Debug)]
pub(crate) struct Topology {
    spec: NetworkSpec,
    started: Instant,
    /// Numbers of the regions of all Envoys.
    envoys: Vec<u32>,
    coordinators: Vec<u32>,
    cuts: Vec<ActiveCut>,
}

/// Nodes that messages do not cross the border of.
#[derive(Clone, Debug)]
pub(crate) struct ActiveCut {
    pub(crate) region: Option<u32>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) direction: Direction,
    pub(crate) until: Instant,
}

// === impl Topology ===

impl Topology {
    pub(crate) fn new(
        spec: NetworkSpec,
        started: Instant,
        envoys: Vec<u32>,
        coordinators: Vec<u32>,
    ) -> Self {
        Self {
            spec,
            started,
            envoys,
            coordinators,
            cuts: Vec::new(),
        }
    }

    /// Cuts nodes off.
    pub(crate) fn cut(&mut self, now: Instant, cut: ActiveCut) {
        self.cuts.retain(|cut| cut.until > now);
        self.cuts.push(cut);
    }

    /// Ends the cuts of just one node.
    pub(crate) fn lift_cuts_of(&mut self, node: Node) {
        self.cuts.retain(|cut| cut.nodes != [node]);
    }

    /// Returns the delays of the copies of a message that arrive.
    pub(crate) fn deliveries(
        &self,
        now: Instant,
        (from, to): (Node, Node),
        random: &mut Random,
    ) -> Vec<Duration> {
        let elapsed = self.elapsed(now);
        let delays = self.delays(elapsed, from, to);
        let deliveries = self.spec.deliveries(delays, elapsed, random);
        if self.is_cut(now, from, to) {
            Vec::new()
        } else {
            deliveries
        }
    }

    /// Returns whether a message cannot get through.
    pub(crate) fn is_cut(&self, now: Instant, from: Node, to: Node) -> bool {
        self.cuts.iter().any(|cut| self.stops(now, cut, from, to))
    }

    /// Returns whether the time of faults is over.
    pub(crate) fn is_calm(&self, now: Instant) -> bool {
        self.spec.is_calm(self.elapsed(now))
    }

    /// Returns the delay of a message on a stream; none if it would have to cross a cut.
    pub(crate) fn stream_delay(
        &self,
        now: Instant,
        (from, to): (Node, Node),
        random: &mut Random,
    ) -> Option<Duration> {
        let elapsed = self.elapsed(now);
        let delays = self.delays(elapsed, from, to);
        let deliveries = self.spec.deliveries(delays, elapsed, random);
        let late = delays[1].saturating_add(SENT_AGAIN);
        (!self.is_cut(now, from, to)).then(|| deliveries.first().copied().unwrap_or(late))
    }

    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_since(self.started)
    }

    fn delays(&self, elapsed: Duration, from: Node, to: Node) -> [Duration; 2] {
        self.spec
            .delays(self.region(from) == self.region(to), elapsed)
    }

    fn stops(&self, now: Instant, cut: &ActiveCut, from: Node, to: Node) -> bool {
        let (out, back) = (self.covers(cut, from), self.covers(cut, to));
        let stopped = match cut.direction {
            Direction::Both => out != back,
            Direction::Out => out && !back,
            Direction::In => back && !out,
        };
        stopped && now < cut.until
    }

    fn covers(&self, cut: &ActiveCut, node: Node) -> bool {
        cut.region == Some(self.region(node)) || cut.nodes.contains(&node)
    }

    fn region(&self, node: Node) -> u32 {
        match node {
            Node::Envoy(index) => self.envoys[index],
            Node::Coordinator(index) => self.coordinators[index],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1);

    #[test]
    fn a_cut_stops_what_crosses_its_border_in_its_direction() {
        let mut topology = Topology::new(NetworkSpec::default(), NOW, vec![0, 1], vec![0]);
        let mut random = Random::new(1);
        let (near, far) = (Node::Envoy(0), Node::Envoy(1));
        let root = Node::Coordinator(0);
        let until = Instant::from_nanos(10);
        topology.cut(
            NOW,
            ActiveCut {
                region: Some(1),
                nodes: Vec::new(),
                direction: Direction::Out,
                until,
            },
        );
        let mut arrives = |now, from, to| {
            let copies = topology.deliveries(now, (from, to), &mut random);
            !copies.is_empty()
        };
        assert!(!arrives(NOW, far, root));
        assert!(arrives(NOW, root, far), "the other direction");
        assert!(arrives(NOW, near, root) && arrives(NOW, far, far));
        assert!(arrives(until, far, root), "it is over");
    }
}
