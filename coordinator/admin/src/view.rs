//! Answers of the API as types, which its clients read as well.

pub use super::clients::{ClientDetail, ClientPage, ClientSummary, LeaseView};
pub use super::history::route::HistoryAnswer;
pub use super::history::{
    ClientHistory, HistoryOverview, ResourceHistory, ScopeHistory, ScopeUnitHistory, UnitHistory,
};
pub use super::lease_view::{
    Amount, BucketView, BusyResource, CreditView, EndedWindowView, LimitedBy, QuotaChangeView,
    QuotaView, ResourceClient, ScopeDetail, ScopePage, ScopeSummary, TrafficView, UnitDetail,
    UnitSummary,
};
pub use super::limits::{
    DynamicWord, LimitPage, LimitView, MatchView, MemberView, OwnView, SafeView, ScopeLimits,
    SourceView,
};
pub use super::problem::{FieldFault, Problem};
pub use super::quotas::{CreditSpec, QuotaChangeSpec, QuotasPage, QuotasView};
pub use super::stats::ResourceStats;
pub use super::status::{
    BorrowedStatus, ClusterStatus, GroupBucket, GroupStatus, GroupUnit, NodeStatus, ParentStatus,
    RuleStatus, ShardStatus, Status,
};
pub use super::stored::{
    AttachmentPage, AttachmentView, DefinedBy, GroupDetail, GroupPage, GroupView, OverridePage,
    OverrideView, RaisePage, RaiseView,
};
pub use tollgate_config::UnmatchedLimit;
