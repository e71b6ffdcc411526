//! Section `attach`: tenants and namespaces, and their groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::ENTRIES_MAX;
use super::fields::similar;
use crate::catalog::check::{Check, attachment};
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

/// Checks all attachments of one kind in the file. Their groups must be in the file as well: the
/// file must be whole without the store.
pub(super) fn attachments(
    check: &mut Check,
    kind: MemberKind,
    raw: Option<&RawEntries>,
    groups: &BTreeMap<Arc<str>, Arc<Group>>,
) -> BTreeMap<Arc<str>, Attachment> {
    let mut attachments = BTreeMap::new();
    let Some(raw) = raw else { return attachments };
    let path = format!("attach.{}", kind.plural());
    if !check.is_within(ENTRIES_MAX, raw.value.len(), raw.at, &path) {
        return attachments;
    }
    for (name, spec) in &raw.value {
        let path = format!("{path}.{}", name.escape_debug());
        let valid = name::check_one(name).and_then(|()| kind.check_name(name));
        let valid = check.name(spec.at, &path, valid);
        let attachment = attachment(check, &path, spec);
        let Some((attachment, ())) = attachment.zip(valid) else {
            continue;
        };
        let group = &attachment.group;
        if groups.contains_key(group) {
            attachments.insert(name.as_str().into(), attachment);
            continue;
        }
        let at = spec.value.group.as_ref().map(|group| group.at);
        let at = at.filter(|at| at.line() > 0).unwrap_or(spec.at);
        let meant = similar(group, groups.keys().map(AsRef::as_ref));
        let meant = meant.map_or_else(String::new, |meant| format!(", did you mean {meant:?}?"));
        let rule = format!("there is no group called {group:?} in this file{meant}");
        check.refuse(at, path, rule);
    }
    attachments
}
