//! Draws and the fleet's bucket, as they may be in a snapshot.

use proptest::prelude::*;
use tollgate_core::fleet::FleetBucketSnapshot;
use tollgate_core::resource::ClientDraws;
use tollgate_core::units::{Capacity, Tokens};

use super::ms;

fn tokens() -> impl Strategy<Value = Tokens> {
    any::<u64>().prop_map(Tokens::from_micros)
}

pub(super) fn draws() -> impl Strategy<Value = ClientDraws> {
    let amounts = (tokens(), tokens(), any::<u64>());
    (any::<u64>(), any::<bool>(), amounts).prop_map(
        |(account, is_offered, (granted, holds, standby))| ClientDraws {
            account,
            is_offered,
            granted,
            holds,
            standby: Capacity::from_micros(standby),
        },
    )
}

pub(super) fn bucket() -> impl Strategy<Value = FleetBucketSnapshot> {
    let tokens = (tokens(), tokens(), tokens(), tokens());
    let all = (tokens, ms(1 << 40), any::<u32>());
    all.prop_map(
        |((left, whole, owed, lacking), turn_in, pressure)| FleetBucketSnapshot {
            left,
            whole,
            owed,
            lacking,
            turn_in,
            pressure,
        },
    )
}
