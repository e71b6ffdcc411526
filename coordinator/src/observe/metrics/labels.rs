//! The labels of metrics: each of a bounded set of values, none of which a request can invent.

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;

/// Why a refresh was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefreshFault {
    /// The call has a bad field.
    Invalid,
    /// The call found no place in the queue.
    Busy,
    /// A later request came first.
    Stale,
    /// The resource is full.
    TooManyClients,
    /// The books are full: of resources.
    TooManyResources,
    /// Of leases.
    TooManyLeases,
    /// The scope is of another shard here than where the call was split.
    Elsewhere,
    /// Nobody answered for its shard.
    NoMaster,
}

/// Who has answered for the scopes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// Books of this node.
    Books,
    /// The master of their shard, to which they were passed on.
    Peer,
    /// Nobody did.
    Nobody,
}

/// `{by}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct By {
    pub(super) by: &'static str,
}

/// Why a request of the admin API was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthFault {
    /// It came without a token.
    Missing,
    /// Nobody has its token.
    Unknown,
    /// Its token does not allow this.
    Role,
    /// Another site made a browser send it.
    Origin,
}

/// What a Doorman client can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoormanMethod {
    /// Who is master.
    Discovery,
    /// What a client gets.
    GetCapacity,
    /// What a server gets for its clients.
    GetServerCapacity,
    /// Leases that are given back.
    ReleaseCapacity,
}

/// `{method, result}` of a call of a Doorman client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DoormanCall {
    pub(super) method: &'static str,
    pub(super) result: &'static str,
}

/// What came of a changed configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reloaded {
    /// It is in force.
    Taken,
    /// It is wrong; the one before is in force.
    Refused,
    /// It could not be read when it was looked at, or not in time.
    Unreadable,
}

/// `{result}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

/// `{reason}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Reason {
    pub(super) reason: &'static str,
}

/// `{method, route, status}` of an answered request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Answered {
    pub(super) method: &'static str,
    pub(super) route: String,
    pub(super) status: u16,
}

// === impl By ===

impl From<AnsweredBy> for By {
    fn from(by: AnsweredBy) -> Self {
        let by = match by {
            AnsweredBy::Books => "books",
            AnsweredBy::Peer => "peer",
            AnsweredBy::Nobody => "nobody",
        };
        Self { by }
    }
}

// === impl AnsweredBy ===

impl AnsweredBy {
    pub(super) const ALL: [Self; 3] = [Self::Books, Self::Peer, Self::Nobody];
}

// === impl Reason ===

impl From<RefreshFault> for Reason {
    fn from(fault: RefreshFault) -> Self {
        Self {
            reason: fault.name(),
        }
    }
}

impl From<AuthFault> for Reason {
    fn from(fault: AuthFault) -> Self {
        Self {
            reason: fault.name(),
        }
    }
}

// === impl Outcome ===

impl From<Reloaded> for Outcome {
    fn from(reloaded: Reloaded) -> Self {
        let result = match reloaded {
            Reloaded::Taken => "taken",
            Reloaded::Refused => "refused",
            Reloaded::Unreadable => "unreadable",
        };
        Self { result }
    }
}

// === impl Reloaded ===

impl Reloaded {
    pub(super) const ALL: [Self; 3] = [Self::Taken, Self::Refused, Self::Unreadable];
}

// === impl RefreshFault ===

impl RefreshFault {
    pub(super) const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Busy,
        Self::Stale,
        Self::TooManyClients,
        Self::TooManyResources,
        Self::TooManyLeases,
        Self::Elsewhere,
        Self::NoMaster,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Busy => "busy",
            Self::Stale => "stale",
            Self::TooManyClients => "too_many_clients",
            Self::TooManyResources => "too_many_resources",
            Self::TooManyLeases => "too_many_leases",
            Self::Elsewhere => "elsewhere",
            Self::NoMaster => "no_master",
        }
    }
}

// === impl AuthFault ===

impl AuthFault {
    pub(super) const ALL: [Self; 4] = [Self::Missing, Self::Unknown, Self::Role, Self::Origin];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Role => "role",
            Self::Origin => "origin",
        }
    }
}

// === free functions ===

/// The name of `method`; `other` for one that a caller invented.
pub(super) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

// === impl DoormanMethod ===

impl DoormanMethod {
    pub(super) const ALL: [Self; 4] = [
        Self::Discovery,
        Self::GetCapacity,
        Self::GetServerCapacity,
        Self::ReleaseCapacity,
    ];

    /// The labels of a call that was answered, or not.
    pub(super) const fn call(self, answered: bool) -> DoormanCall {
        let method = match self {
            Self::Discovery => "discovery",
            Self::GetCapacity => "get_capacity",
            Self::GetServerCapacity => "get_server_capacity",
            Self::ReleaseCapacity => "release_capacity",
        };
        let result = if answered { "answered" } else { "refused" };
        DoormanCall { method, result }
    }
}
