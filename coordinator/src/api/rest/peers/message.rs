//! Messages between nodes, made of the API's views and read as such.

use std::collections::BTreeMap;

use tollgate_proto::v1;

use crate::api::rest::clients::{ClientDetail, ClientPage, ClientSummary, LeaseView};
use crate::leases::view::{
    Amount, BusyResource, LimitedBy, ResourceClient, ScopeDetail, ScopePage, ScopeSummary,
    UnitDetail, UnitSummary,
};

mod history;
mod status;

pub(in crate::api::rest) use self::history::history_window;

// === impl PeerResource ===

impl From<BusyResource> for v1::PeerResource {
    fn from(resource: BusyResource) -> Self {
        let UnitSummary {
            capacity,
            safe,
            learning_ms,
            sum_has,
            sum_wants,
            client_count,
            limited_by,
        } = resource.summary;
        let (limited_by, at_most) = match limited_by {
            Some(LimitedBy { whose, at_most }) => (whose, number(at_most)),
            None => (String::new(), f64::INFINITY),
        };
        let clients = resource.clients.into_iter();
        Self {
            scope: resource.scope,
            unit: resource.unit,
            capacity: number(capacity),
            safe: safe.map(number),
            learning_ms,
            sum_has: number(sum_has),
            sum_wants: number(sum_wants),
            client_count: client_count as u64,
            limited_by,
            at_most,
            waiting_count: resource.waiting_count as u64,
            throttled_for_ms: resource.throttled_for_ms,
            clients: clients.map(v1::ClientShare::from).collect(),
        }
    }
}

impl From<v1::PeerResource> for BusyResource {
    fn from(resource: v1::PeerResource) -> Self {
        let whose = resource.limited_by;
        let limited_by = (!whose.is_empty()).then(|| LimitedBy {
            whose,
            at_most: amount(resource.at_most),
        });
        let clients = resource.clients.into_iter();
        Self {
            scope: resource.scope,
            unit: resource.unit,
            summary: UnitSummary {
                capacity: amount(resource.capacity),
                safe: resource.safe.map(amount),
                learning_ms: resource.learning_ms,
                sum_has: amount(resource.sum_has),
                sum_wants: amount(resource.sum_wants),
                client_count: len(resource.client_count),
                limited_by,
            },
            waiting_count: len(resource.waiting_count),
            throttled_for_ms: resource.throttled_for_ms,
            clients: clients.map(ResourceClient::from).collect(),
        }
    }
}

// === impl ClientShare ===

impl From<ResourceClient> for v1::ClientShare {
    fn from(view: ResourceClient) -> Self {
        Self {
            client: view.client,
            wants: number(view.wants),
            has: number(view.has),
            expires_in_ms: view.expires_in_ms,
            throttled_for_ms: view.throttled_for_ms,
        }
    }
}

impl From<v1::ClientShare> for ResourceClient {
    fn from(share: v1::ClientShare) -> Self {
        Self {
            client: share.client,
            wants: amount(share.wants),
            has: amount(share.has),
            expires_in_ms: share.expires_in_ms,
            throttled_for_ms: share.throttled_for_ms,
        }
    }
}

// === impl ResourceList ===

impl From<ScopePage> for v1::ResourceList {
    fn from(page: ScopePage) -> Self {
        let resources = page.scopes.into_iter().flat_map(|scope| {
            let ScopeSummary { scope, units } = scope;
            units.into_iter().map(move |(unit, summary)| {
                let resource = BusyResource {
                    scope: scope.clone(),
                    unit,
                    summary,
                    waiting_count: 0,
                    throttled_for_ms: None,
                    clients: Vec::new(),
                };
                resource.into()
            })
        });
        Self {
            resources: resources.collect(),
            more: page.next.is_some(),
        }
    }
}

impl From<ScopeDetail> for v1::ResourceList {
    fn from(detail: ScopeDetail) -> Self {
        let resources = detail.units.into_iter().map(|(unit, detail_of_unit)| {
            let UnitDetail {
                summary,
                waiting_count,
                throttled_for_ms,
                clients,
            } = detail_of_unit;
            let resource = BusyResource {
                scope: detail.scope.clone(),
                unit,
                summary,
                waiting_count,
                throttled_for_ms,
                clients,
            };
            resource.into()
        });
        Self {
            resources: resources.collect(),
            more: false,
        }
    }
}

impl From<v1::ResourceList> for ScopePage {
    fn from(list: v1::ResourceList) -> Self {
        let mut scopes: Vec<ScopeSummary> = Vec::new();
        for resource in list.resources {
            let resource = BusyResource::from(resource);
            if scopes
                .last()
                .is_none_or(|last| last.scope != resource.scope)
            {
                scopes.push(ScopeSummary {
                    scope: resource.scope,
                    units: BTreeMap::new(),
                });
            }
            if let Some(last) = scopes.last_mut() {
                last.units.insert(resource.unit, resource.summary);
            }
        }
        let last = scopes.last().map(|last| last.scope.clone());
        Self {
            scopes,
            next: last.filter(|_| list.more),
            unanswered: Vec::new(),
        }
    }
}

// === impl ClientList ===

impl From<ClientPage> for v1::ClientList {
    fn from(page: ClientPage) -> Self {
        let clients = page.clients.into_iter().map(|client| v1::ClientCounts {
            client: client.client,
            resource_count: client.resource_count as u64,
            waiting_count: client.waiting_count as u64,
        });
        Self {
            clients: clients.collect(),
            more: page.next.is_some(),
        }
    }
}

impl From<v1::ClientCounts> for ClientSummary {
    fn from(counts: v1::ClientCounts) -> Self {
        Self {
            client: counts.client,
            resource_count: len(counts.resource_count),
            waiting_count: len(counts.waiting_count),
        }
    }
}

// === impl ClientLeases ===

impl From<ClientDetail> for v1::ClientLeases {
    fn from(detail: ClientDetail) -> Self {
        let leases = detail.leases.into_iter().map(|lease| v1::ResourceShare {
            scope: lease.scope,
            unit: lease.unit,
            wants: number(lease.wants),
            has: number(lease.has),
            expires_in_ms: lease.expires_in_ms,
        });
        Self {
            drained_for_ms: detail.drained_for_ms,
            lease_count: detail.lease_count as u64,
            leases: leases.collect(),
        }
    }
}

impl From<v1::ResourceShare> for LeaseView {
    fn from(share: v1::ResourceShare) -> Self {
        Self {
            scope: share.scope,
            unit: share.unit,
            wants: amount(share.wants),
            has: amount(share.has),
            expires_in_ms: share.expires_in_ms,
        }
    }
}

// === free functions ===

/// Returns the leases of `client`; none if it has none.
pub(in crate::api::rest) fn client_detail(
    client: &str,
    leases: v1::ClientLeases,
) -> Option<ClientDetail> {
    (leases.lease_count > 0).then(|| ClientDetail {
        client: client.to_owned(),
        drained_for_ms: leases.drained_for_ms,
        lease_count: len(leases.lease_count),
        leases: leases.leases.into_iter().map(LeaseView::from).collect(),
        unanswered: Vec::new(),
    })
}

/// Returns the one scope of which `list` has the resources; none if it has none.
pub(in crate::api::rest) fn scope_detail(list: v1::ResourceList) -> Option<ScopeDetail> {
    let scope = list.resources.first()?.scope.clone();
    let units = list.resources.into_iter().map(|resource| {
        let resource = BusyResource::from(resource);
        let detail = UnitDetail {
            summary: resource.summary,
            waiting_count: resource.waiting_count,
            throttled_for_ms: resource.throttled_for_ms,
            clients: resource.clients,
        };
        (resource.unit, detail)
    });
    Some(ScopeDetail {
        scope,
        units: units.collect(),
        unanswered: Vec::new(),
    })
}

fn amount(value: f64) -> Amount {
    match value.is_finite() {
        true => Amount::Number(value),
        false => Amount::Unlimited,
    }
}

fn number(amount: Amount) -> f64 {
    match amount {
        Amount::Number(value) => value,
        Amount::Unlimited => f64::INFINITY,
    }
}

fn len(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(scope: &str, unit: &str, capacity: Amount) -> BusyResource {
        BusyResource {
            scope: scope.to_owned(),
            unit: unit.to_owned(),
            summary: UnitSummary {
                capacity,
                safe: Some(Amount::Unlimited),
                learning_ms: 7,
                sum_has: Amount::Number(0.5),
                sum_wants: Amount::Number(2.5),
                client_count: 1,
                limited_by: Some(LimitedBy {
                    whose: "own limit".to_owned(),
                    at_most: capacity,
                }),
            },
            waiting_count: 1,
            throttled_for_ms: Some(5000),
            clients: vec![ResourceClient {
                client: "envoy-1/a".to_owned(),
                wants: Amount::Number(2.5),
                has: Amount::Unlimited,
                expires_in_ms: 3,
                throttled_for_ms: Some(4000),
            }],
        }
    }

    #[test]
    fn a_resource_is_read_as_it_was_written() {
        for capacity in [Amount::Unlimited, Amount::Number(0.0)] {
            let mut one = busy("a", "requests", capacity);
            assert_eq!(BusyResource::from(v1::PeerResource::from(one.clone())), one);
            one.summary.limited_by = None;
            one.summary.safe = None;
            one.throttled_for_ms = None;
            assert_eq!(BusyResource::from(v1::PeerResource::from(one.clone())), one);
        }
    }

    #[test]
    fn a_page_of_scopes_is_read_as_it_was_written() {
        let summary = |unit: &str| {
            let one = busy("", unit, Amount::Number(1.0));
            (unit.to_owned(), one.summary)
        };
        let scope = |name: &str, units: &[&str]| ScopeSummary {
            scope: name.to_owned(),
            units: units.iter().map(|unit| summary(unit)).collect(),
        };
        for next in [None, Some("b".to_owned())] {
            let page = ScopePage {
                scopes: vec![
                    scope("a", &["concurrency", "requests"]),
                    scope("b", &["requests"]),
                ],
                next,
                unanswered: Vec::new(),
            };
            assert_eq!(ScopePage::from(v1::ResourceList::from(page.clone())), page);
        }
    }
}
