//! Fields `tls.grpc.children` and `tls.grpc.nodes`: the certificates of coordinators that call.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::parent;
use crate::catalog::check::{Check, Rule};
use crate::catalog::spec::{LocatedScalar, LocatedValue};

/// The most coordinators below, and the most names of one certificate's owner.
const CHILDREN_MAX: usize = 1000;
const NAMES_MAX: usize = 100;

/// The longest name in a certificate, in bytes.
const NAME_LEN_MAX: usize = 512;

/// Names that certificates of calling coordinators must have, one of several each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerNames {
    /// Those of coordinators below, by their `parent.name`; without it a coordinator is who it says.
    pub children: Option<BTreeMap<String, Vec<String>>>,
    /// Those of other nodes of the cluster; without it a node is whoever calls as one.
    pub nodes: Option<Vec<String>>,
}

pub(super) type RawNames = LocatedValue<Vec<LocatedScalar>>;
pub(super) type RawChildren = LocatedValue<BTreeMap<String, RawNames>>;

// === impl CallerNames ===

impl CallerNames {
    /// Checks both fields, in a file in which clients show certificates if `has_client_ca`, and calls
    /// are forwarded if `in_cluster`.
    pub(super) fn check(
        check: &mut Check,
        (children, nodes): (Option<&RawChildren>, Option<&RawNames>),
        has_client_ca: bool,
        in_cluster: bool,
    ) -> Self {
        let fields = [
            ("tls.grpc.children", children.map(|raw| raw.at)),
            ("tls.grpc.nodes", nodes.map(|raw| raw.at)),
        ];
        for (field, at) in fields {
            if let Some(at) = at.filter(|_| !has_client_ca) {
                let rule = "needs tls.grpc.client_ca: without it nobody shows a certificate";
                check.refuse(at, field, rule);
            }
        }
        if let Some(raw) = children
            && nodes.is_none()
            && in_cluster
        {
            let rule = "is missing: in a cluster tls.grpc.children needs it, for what a coordinator \
                        below asks comes through other nodes as well";
            check.refuse(raw.at, "tls.grpc.nodes", rule);
        }
        Self {
            children: children.map(|raw| names_by_child(check, raw)),
            nodes: nodes.map(|raw| names(check, raw, "tls.grpc.nodes")),
        }
    }
}

// === free functions ===

fn names_by_child(check: &mut Check, raw: &RawChildren) -> BTreeMap<String, Vec<String>> {
    let field = "tls.grpc.children";
    check.is_within(CHILDREN_MAX, raw.value.len(), raw.at, field);
    let children = raw.value.iter();
    let children = children.map(|(child, raw)| {
        if let Err(rule) = parent::name(child) {
            check.refuse(raw.at, field, rule);
        }
        (
            child.clone(),
            names(check, raw, &format!("{field}.{child}")),
        )
    });
    children.collect()
}

fn names(check: &mut Check, raw: &RawNames, field: &str) -> Vec<String> {
    if raw.value.is_empty() {
        check.refuse(raw.at, field, "is empty: no certificate would do");
    }
    check.is_within(NAMES_MAX, raw.value.len(), raw.at, field);
    let names = raw.value.iter().enumerate();
    let names = names.filter_map(|(i, text)| check.value(text, &format!("{field}[{i}]"), name));
    names.collect()
}

/// A name as [`PeerNames`](tollgate_net::tls::PeerNames) has it.
fn name(text: &str) -> Result<String, Rule> {
    if text.is_empty() || text.len() > NAME_LEN_MAX || text.contains(char::is_whitespace) {
        let rule = format!(
            "{text:?} is neither a DNS name nor a URI like spiffe://example/eu, as certificates have \
             them"
        );
        return Err(rule.into());
    }
    if text.contains('*') {
        return Err(format!("{text:?} is a pattern: each name must be there as it is").into());
    }
    if text.parse::<IpAddr>().is_ok() {
        let rule = format!("{text:?} is an IP address, which is no name of a coordinator");
        return Err(rule.into());
    }
    Ok(if text.contains(':') {
        text.to_owned()
    } else {
        text.to_ascii_lowercase()
    })
}
