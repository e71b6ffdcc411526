//! The status of a node as a message.

use std::collections::BTreeMap;

use tollgate_proto::v1;

use super::len;
use crate::api::rest::status::{
    BorrowedStatus, ClusterStatus, GroupStatus, GroupUnit, NodeStatus, ParentStatus, ShardStatus,
    Status,
};
use crate::leases::stats::ResourceStats;
use crate::leases::view::BusyResource;

// === impl PeerStatus ===

impl From<Status> for v1::PeerStatus {
    fn from(status: Status) -> Self {
        let cluster = status.cluster.unwrap_or_default();
        let led = cluster.shards.into_iter().filter_map(led_shard);
        Self {
            node: cluster.node,
            version: status.version,
            uptime_ms: status.uptime_ms,
            refreshes_per_second: status.refreshes_per_second,
            epoch: status.epoch,
            units: status.units.into_iter().map(unit_sums).collect(),
            groups: status.groups.into_iter().map(group_sums).collect(),
            shards: led.collect(),
            parent: status.parent.map(parent_state),
            match_count: Some(status.match_count as u64),
            busiest: status.busiest.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::PeerStatus> for Status {
    fn from(peer: v1::PeerStatus) -> Self {
        let master = &peer.node;
        let shards = peer.shards.iter().map(|shard| ShardStatus {
            shard: u16::try_from(shard.shard).unwrap_or(u16::MAX),
            master: Some(master.clone()),
            epoch: Some(shard.epoch),
            term_left_ms: shard.term_left_ms,
            learning_count: Some(len(shard.learning_count)),
        });
        let cluster = ClusterStatus {
            shards: shards.collect(),
            nodes: vec![NodeStatus {
                node: master.clone(),
                alive: true,
                version: Some(peer.version.clone()),
                uptime_ms: Some(peer.uptime_ms),
                refreshes_per_second: Some(peer.refreshes_per_second),
                ..NodeStatus::default()
            }],
            node: peer.node,
        };
        let units: BTreeMap<_, _> = peer.units.into_iter().map(unit_status).collect();
        Self {
            version: peer.version,
            epoch: peer.epoch,
            uptime_ms: peer.uptime_ms,
            refreshes_per_second: peer.refreshes_per_second,
            resource_count: units.values().map(|sums| sums.resources).sum(),
            match_count: len(peer.match_count.unwrap_or_default()),
            units,
            group_count: peer.groups.len(),
            groups: peer.groups.into_iter().map(group_status).collect(),
            cluster: Some(cluster),
            parent: peer.parent.map(parent_status),
            busiest: peer.busiest.into_iter().map(BusyResource::from).collect(),
            unanswered: Vec::new(),
        }
    }
}

// === free functions ===

/// Returns a shard of which the node that says so is master; none of another's.
fn led_shard(shard: ShardStatus) -> Option<v1::LedShard> {
    Some(v1::LedShard {
        shard: shard.shard.into(),
        epoch: shard.epoch?,
        term_left_ms: shard.term_left_ms,
        learning_count: shard.learning_count? as u64,
    })
}

fn unit_sums((unit, status): (String, ResourceStats)) -> v1::UnitSums {
    v1::UnitSums {
        unit,
        resource_count: status.resources as u64,
        unlimited_count: status.unlimited as u64,
        client_count: status.clients as u64,
        waiting_count: status.waiting as u64,
        learning_count: status.learning as u64,
        capacity: status.capacity,
        sum_has: status.has,
        sum_wants: status.wants,
    }
}

fn unit_status(sums: v1::UnitSums) -> (String, ResourceStats) {
    let status = ResourceStats {
        resources: len(sums.resource_count),
        unlimited: len(sums.unlimited_count),
        clients: len(sums.client_count),
        waiting: len(sums.waiting_count),
        learning: len(sums.learning_count),
        capacity: sums.capacity,
        has: sums.sum_has,
        wants: sums.sum_wants,
    };
    (sums.unit, status)
}

fn group_sums(group: GroupStatus) -> v1::GroupSums {
    let units = group.units.into_iter();
    let units = units.map(|(unit, sums)| v1::GroupUnitSums {
        unit,
        capacity: super::number(sums.capacity),
        sum_has: sums.sum_has,
        sum_wants: sums.sum_wants,
        member_count: sums.member_count as u64,
    });
    v1::GroupSums {
        name: group.name,
        fair_between: group.fair_between,
        attached_count: group.attached_count as u64,
        units: units.collect(),
    }
}

fn group_status(sums: v1::GroupSums) -> GroupStatus {
    let units = sums.units.into_iter().map(|unit| {
        let status = GroupUnit {
            capacity: super::amount(unit.capacity),
            sum_has: unit.sum_has,
            sum_wants: unit.sum_wants,
            member_count: len(unit.member_count),
        };
        (unit.unit, status)
    });
    GroupStatus {
        name: sums.name,
        fair_between: sums.fair_between,
        attached_count: len(sums.attached_count),
        units: units.collect(),
    }
}

fn parent_state(parent: ParentStatus) -> v1::ParentState {
    let units = parent.units.into_iter().map(|(unit, sums)| {
        let wants = sums.wants.into_iter();
        v1::BorrowedSums {
            unit,
            borrowed: sums.borrowed,
            unlimited_count: sums.unlimited_count as u64,
            wants: wants
                .map(|(band, wants)| v1::BandSum { band, wants })
                .collect(),
        }
    });
    v1::ParentState {
        address: parent.address,
        answered_ms_ago: parent.answered_ms_ago,
        error: parent.error,
        above: parent.above,
        units: units.collect(),
    }
}

fn parent_status(state: v1::ParentState) -> ParentStatus {
    let units = state.units.into_iter().map(|sums| {
        let wants = sums.wants.into_iter();
        let status = BorrowedStatus {
            borrowed: sums.borrowed,
            unlimited_count: len(sums.unlimited_count),
            wants: wants.map(|sum| (sum.band, sum.wants)).collect(),
        };
        (sums.unit, status)
    });
    ParentStatus {
        address: state.address,
        answered_ms_ago: state.answered_ms_ago,
        error: state.error,
        above: state.above,
        units: units.collect(),
    }
}
