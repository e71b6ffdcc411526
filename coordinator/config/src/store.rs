//! Section `store`: the file of groups, attachments and overrides written through the API.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::catalog::check::{Check, not_empty};
use crate::catalog::spec::LocatedScalar;

/// Store of a node without a cluster, for groups, attachments and overrides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreConfig {
    /// Beside the configuration file, with the extension `redb`; made when something is written.
    #[default]
    Beside,
    /// In a file, which is made at the start; a relative path starts at the configuration file.
    File(PathBuf),
    /// Memory: it is forgotten at the end.
    Memory,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    path: Option<LocatedScalar>,
}

// === impl StoreConfig ===

impl StoreConfig {
    /// Checks the section, which is empty in a cluster: its store is etcd.
    pub(super) fn check(check: &mut Check, raw: Option<&RawStore>, in_cluster: bool) -> Self {
        let text = raw.and_then(|raw| raw.path.as_ref());
        if let Some(text) = text.filter(|_| in_cluster) {
            let rule = "cannot be here together with `cluster.etcd`, in which a cluster keeps \
                        objects that are written through the API";
            check.refuse(text.at, "store.path", rule);
        }
        let store = check.value(text, "store.path", |text| match text {
            "memory" => Ok(Self::Memory),
            path => Ok(Self::File(not_empty(path)?.into())),
        });
        store.unwrap_or_default()
    }

    /// The file to keep it in, for a configuration that was read from `file`, and whether it is
    /// made at the start; none for memory.
    pub fn path(&self, file: Option<&Path>) -> Option<(PathBuf, bool)> {
        match self {
            Self::Memory => None,
            Self::Beside => Some((file?.with_extension("redb"), false)),
            Self::File(path) => {
                let beside = file.and_then(|file| Some(file.parent()?.join(path)));
                Some((beside.unwrap_or_else(|| path.clone()), true))
            }
        }
    }
}
