//! Kinds of things, and their paths in the API.

use anyhow::anyhow;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::failure::Failure;

/// Kind that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A named set of limits that tenants and namespaces share.
    #[value(alias = "groups")]
    Group,
    /// A tenant's attachment to a group.
    #[value(alias = "tenants")]
    Tenant,
    /// A namespace's attachment to a group, `tenant/namespace`.
    #[value(alias = "namespaces")]
    Namespace,
    /// Limits of one scope, instead of those of the configuration's patterns.
    #[value(alias = "overrides")]
    Override,
    /// Limits of a scope or a group for a time, instead of all others.
    #[value(alias = "raises")]
    Raise,
    /// A scope that clients have or want leases of, such as `tenant/acme`.
    #[value(alias = "scopes")]
    Scope,
    /// An Envoy, `<node id>/<random>`.
    #[value(alias = "clients")]
    Client,
    /// Limits in force for a scope, and their sources.
    #[value(alias = "limits")]
    Limit,
    /// Quotas of a scope or a group, and what is used of them.
    #[value(alias = "quotas")]
    Quota,
}

/// Kinds that can be deleted.
pub(crate) const STORED: [Kind; 5] = [
    Kind::Group,
    Kind::Tenant,
    Kind::Namespace,
    Kind::Override,
    Kind::Raise,
];

/// Kinds that have limits of their own.
pub(crate) const LIMITED: [Kind; 2] = [Kind::Group, Kind::Override];

/// Kinds that can be attached to a group.
pub(crate) const MEMBERS: [Kind; 2] = [Kind::Tenant, Kind::Namespace];

// === impl Kind ===

impl Kind {
    /// Returns the word for one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Tenant => "tenant",
            Self::Namespace => "namespace",
            Self::Override => "override",
            Self::Raise => "raise",
            Self::Scope => "scope",
            Self::Client => "client",
            Self::Limit => "limit",
            Self::Quota => "quota",
        }
    }

    /// Returns the path of the list.
    pub(crate) fn all(self) -> String {
        match self {
            Self::Tenant | Self::Namespace => format!("/v1/attachments/{}s", self.name()),
            _ => format!("/v1/{}s", self.name()),
        }
    }

    /// Returns the path of the one called `name`.
    pub(crate) fn one(self, name: &str) -> Result<String, Failure> {
        if name.is_empty() {
            return Err(Failure::usage(anyhow!(
                "the name of a {} is empty",
                self.name()
            )));
        }
        let name = match self {
            Self::Group | Self::Tenant | Self::Client => segment(name),
            Self::Override | Self::Raise | Self::Scope | Self::Limit | Self::Quota => path(name),
            Self::Namespace => {
                let parts = name.split_once('/');
                let rule = || anyhow!("{name:?} is no namespace: say TENANT/NAMESPACE");
                let (tenant, namespace) = parts.ok_or_else(|| Failure::usage(rule()))?;
                format!("{}/{}", segment(tenant), segment(namespace))
            }
        };
        Ok(format!("{}/{name}", self.all()))
    }
}

// === free functions ===

/// Returns a parser of the names of `kinds`.
pub(crate) fn one_of(kinds: impl IntoIterator<Item = Kind>) -> impl TypedValueParser<Value = Kind> {
    let names = kinds
        .into_iter()
        .filter_map(|kind| kind.to_possible_value());
    PossibleValuesParser::new(names).try_map(|name| Kind::from_str(&name, false))
}

/// `name` as one segment of a path, or the value of a query.
pub(crate) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// `name` as the rest of a path: its slashes are the path's.
fn path(name: &str) -> String {
    let segments: Vec<String> = name.split('/').map(segment).collect();
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_once_and_where_they_must_be() {
        let rows = [
            (Kind::Group, "gold", "/v1/groups/gold"),
            (
                Kind::Tenant,
                "a/b%c ü",
                "/v1/attachments/tenants/a%2Fb%25c%20%C3%BC",
            ),
            (Kind::Namespace, "a/b", "/v1/attachments/namespaces/a/b"),
            (
                Kind::Namespace,
                "a/b/c",
                "/v1/attachments/namespaces/a/b%2Fc",
            ),
            (Kind::Override, "tenant/a?b", "/v1/overrides/tenant/a%3Fb"),
            (Kind::Scope, "namespace/a/b", "/v1/scopes/namespace/a/b"),
            (Kind::Client, "node/12ab", "/v1/clients/node%2F12ab"),
            (Kind::Limit, "route/x#y", "/v1/limits/route/x%23y"),
            (Kind::Quota, "group/gold", "/v1/quotas/group/gold"),
        ];
        for (kind, name, want) in rows {
            assert_eq!(kind.one(name).unwrap(), want);
        }
        assert!(Kind::Group.one("").is_err());
        assert!(Kind::Namespace.one("a").is_err());
    }
}
