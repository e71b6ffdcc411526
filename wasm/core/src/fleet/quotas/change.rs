//! Changes of a quota's use that people make.

use alloc::string::String;

use crate::units::{Tokens, WallTime};

/// The most credits of one quota that have not expired.
pub(super) const CREDITS_MAX: usize = 16;

/// The most changes of one quota that are remembered.
pub(super) const CHANGES_MAX: usize = 8;

/// Tokens beside the amount of a quota, until they are used or expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaCredit {
    /// Its id: the same credit is given once.
    pub id: String,
    /// The tokens.
    pub amount: Tokens,
    /// Those of them that are left.
    pub left: Tokens,
    /// Time at which it expires.
    pub until: WallTime,
}

/// Change of what is used of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// So many tokens have been spent in this window; those that clients hold count beside them.
    SetUsed(Tokens),
    /// A credit.
    Credit {
        /// Its id.
        id: String,
        /// The tokens.
        amount: Tokens,
        /// Time at which it expires; none for the end of the window.
        until: Option<WallTime>,
    },
    /// The rest of a credit is taken back.
    Withdraw {
        /// Its id.
        id: String,
    },
}

/// Change of a quota that a person makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaChangeRequest {
    /// Name of the quota's period.
    pub quota: String,
    /// Name of the person's token; empty if that is not known.
    pub by: String,
    /// The change.
    pub change: QuotaChange,
}

/// A change that a person made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaEvent {
    /// The time.
    pub at: WallTime,
    /// The person, or the name of the token; empty if that is not known.
    pub by: String,
    /// Id of the credit; none for a change of what is used.
    pub credit: Option<String>,
    /// Tokens of the credit, none if it was withdrawn; or that were said to be used.
    pub tokens: Tokens,
}

/// Reason for which a quota cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The limit has no quota of that name.
    #[error("the limit has no quota of this name")]
    Unknown,
    /// A credit with this id has another amount.
    #[error("a credit with this id was given with another amount")]
    CreditDiffers,
    /// There is no credit with this id.
    #[error("the quota has no credit with this id")]
    NoCredit,
    /// The credit has expired.
    #[error("the credit would have expired already")]
    Expired,
    /// The quota has as many credits as it may.
    #[error("the quota has {CREDITS_MAX} credits that have not expired, the most")]
    TooManyCredits,
    /// The coordinator has as many resources as it may.
    #[error("this coordinator has {max} resources, the most it may")]
    TooManyResources {
        /// The bound.
        max: usize,
    },
}
