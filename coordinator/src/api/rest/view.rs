//! Answers of the API as types, which its clients read as well.

pub use super::clients::{ClientDetail, ClientPage, ClientSummary, LeaseView};
pub use super::history::HistoryAnswer;
pub use super::limits::{
    DynamicWord, LimitPage, LimitView, MatchView, MemberView, OwnView, SafeView, ScopeLimits,
    SourceView,
};
pub use super::problem::{FieldFault, Problem};
pub use super::status::{
    BorrowedStatus, ClusterStatus, GroupBucket, GroupStatus, GroupUnit, NodeStatus, ParentStatus,
    RuleStatus, ShardStatus, Status,
};
pub use super::stored::{
    AttachmentPage, AttachmentView, DefinedBy, GroupDetail, GroupPage, GroupView, OverridePage,
    OverrideView, RaisePage, RaiseView,
};
pub use crate::config::UnmatchedLimit;
pub use crate::leases::history::{
    ClientHistory, HistoryOverview, ResourceHistory, ScopeHistory, ScopeUnitHistory, UnitHistory,
};
pub use crate::leases::stats::ResourceStats;
pub use crate::leases::view::{
    Amount, BucketView, BusyResource, LimitedBy, ResourceClient, ScopeDetail, ScopePage,
    ScopeSummary, TrafficView, UnitDetail, UnitSummary,
};
