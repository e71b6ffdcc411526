//! Who is attached to which group by the file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;

use super::ENTRIES_MAX;
use super::check::{Check, join};
use super::error::{ConfigErrors, Problem};
use crate::catalog::spec::{AttachmentSpec, LocatedValue};
use crate::catalog::{Attachment, Group, MemberKind, name};

type RawEntries = LocatedValue<BTreeMap<String, LocatedValue<AttachmentSpec>>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAttach {
    tenants: Option<RawEntries>,
    namespaces: Option<RawEntries>,
}

// === impl RawAttach ===

impl RawAttach {
    pub(super) fn of(&self, kind: MemberKind) -> Option<&RawEntries> {
        match kind {
            MemberKind::Tenant => self.tenants.as_ref(),
            MemberKind::Namespace => self.namespaces.as_ref(),
        }
    }
}

// === free functions ===

/// All attachments of one kind in the file, by name. Their groups must be in the file as well: what
/// it says must be whole without what the store has.
pub(super) fn attachments(
    check: &mut Check,
    kind: MemberKind,
    raw: Option<&RawEntries>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> BTreeMap<Arc<str>, Attachment> {
    let mut attachments = BTreeMap::new();
    let Some(raw) = raw else { return attachments };
    let path = format!("attach.{}", kind.plural());
    let count = raw.value.len();
    if count > ENTRIES_MAX {
        let max = ENTRIES_MAX;
        check.refuse(raw.at, path, Problem::TooMany { count, max });
        return attachments;
    }
    for (name, spec) in &raw.value {
        let path = format!("{path}.{}", name.escape_debug());
        let text = LocatedValue {
            value: name.as_str().into(),
            at: spec.at,
        };
        let valid = check.value(Some(&text), &path, |text| {
            name::check_one(text)?;
            Ok(kind.check(text)?)
        });
        let attachment = attachment(check, &path, spec);
        let Some((attachment, ())) = attachment.zip(valid) else {
            continue;
        };
        if !groups.contains_key(&attachment.group) {
            let group = spec.value.group.as_ref();
            let at = group.map(|group| group.at).filter(|at| at.line() > 0);
            let problem = Problem::NoGroup(attachment.group.as_ref().into());
            check.refuse(at.unwrap_or(spec.at), path, problem);
            continue;
        }
        attachments.insert(name.as_str().into(), attachment);
    }
    attachments
}

/// What `spec`, which came as JSON, says of the attachment of `name`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_attachment(
    kind: MemberKind,
    name: &str,
    spec: AttachmentSpec,
) -> Result<Attachment, ConfigErrors> {
    let mut check = Check::default();
    let text = LocatedValue::nowhere(name.into());
    let valid = check.value(Some(&text), "name", |name| Ok(kind.check(name)?));
    let attachment = attachment(&mut check, "", &LocatedValue::nowhere(spec));
    check.end(attachment.zip(valid).map(|(attachment, ())| attachment))
}

fn attachment(
    check: &mut Check,
    path: &str,
    spec: &LocatedValue<AttachmentSpec>,
) -> Option<Attachment> {
    let weight = spec.value.weight.as_ref();
    let weight = check.value(weight, &join(path, "weight"), weight_of);
    let Some(group) = &spec.value.group else {
        check.refuse(spec.at, join(path, "group"), Problem::Missing);
        return None;
    };
    Some(Attachment {
        group: group.value.as_str().into(),
        weight: weight.unwrap_or(NonZeroU32::MIN),
    })
}

fn weight_of(text: &str) -> Result<NonZeroU32, Problem> {
    let weight = text.parse().ok();
    let weight = weight.filter(|weight: &NonZeroU32| weight.get() <= Attachment::WEIGHT_MAX);
    weight.ok_or_else(|| Problem::Weight(text.to_owned()))
}
