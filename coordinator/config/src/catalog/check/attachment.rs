//! Rules for an attachment.

use std::num::NonZeroU32;

use super::{Check, Rule, join};
use crate::catalog::Attachment;
use crate::catalog::spec::{AttachmentSpec, LocatedValue};

/// Checks the attachment at `path`; `None` if it has errors, which are noted.
pub(crate) fn attachment(
    check: &mut Check,
    path: &str,
    spec: &LocatedValue<AttachmentSpec>,
) -> Option<Attachment> {
    let weight = check.value(&spec.value.weight, &join(path, "weight"), weight);
    let Some(group) = &spec.value.group else {
        check.missing(spec.at, join(path, "group"));
        return None;
    };
    Some(Attachment {
        group: group.value.as_str().into(),
        weight: weight.unwrap_or(NonZeroU32::MIN),
    })
}

fn weight(text: &str) -> Result<NonZeroU32, Rule> {
    let weight = text.parse().ok();
    let weight = weight.filter(|weight: &NonZeroU32| weight.get() <= Attachment::WEIGHT_MAX);
    weight
        .ok_or_else(|| format!("{text:?} is not a weight, a whole number from 1 to 1000000").into())
}
