//! The configuration of a coordinator: its file (limits, listeners, the other coordinators) and the
//! [`catalog`] of the limits in force.
//!
//! A file is accepted as a whole or refused as a whole. Every error has the line and column, the
//! field and the rule it breaks; all values are checked before any is reported, so that one run
//! shows everything. Only an error in the shape of the file (an unknown field, a list where a
//! number belongs) is reported alone, because nothing after it can be trusted.
//!
//! Each section has a file of its own, with its shape and its rules; the rules for limits, groups
//! and attachments are in [`crate::catalog::check`], for they hold in the API too.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::lease_server::Bounds;
use tollgate_net::connections::ConnectionBounds;
use tollgate_net::files;
use tollgate_net::tls::{CertificateOwner, TlsError};

use crate::catalog::FileCatalog;
use crate::catalog::check::{Check, ConfigError, ConfigErrors};

mod admin;
mod attach;
mod bounds;
mod callers;
pub mod catalog;
mod client_tls;
mod cluster;
mod connections;
mod doorman;
mod explain;
mod fields;
mod groups;
mod limits;
mod listen;
mod parent;
mod raw;
pub mod reload;
mod rlqs;
mod rls;
mod shared;
#[cfg(feature = "etcd")]
pub mod shared_config;
mod store;
mod tls;
pub mod tokens;
mod unmatched;
mod values;
mod warnings;
pub mod writer;
pub mod yaml;

pub use admin::{Admin, Public};
pub use callers::CallerNames;
pub use doorman::DoormanScopes;
pub use explain::{HoldingLimits, LimitOrigin, ScopeExplanation};
pub use fields::unknown_field;
pub use listen::Listen;
pub use parent::{ParentConfig, address as parent_address};
pub use rlqs::{RlqsDomain, RlqsDomains};
pub use rls::{
    RLS_ENTRIES_MAX, RLS_KINDS_MAX, RLS_RULES_MAX, RlsDomain, RlsDomains, RlsRule,
    kinds as rls_kinds,
};
pub use store::StoreConfig;
pub use tls::Tls;
pub use unmatched::{KnownRules, UnmatchedLimit, UnmatchedSource};

pub use tollgate_cluster::config::{Advertise, ClusterConfig, EtcdConfig, Login};

use listen::is_loopback;
use shared::{RawShared, Shared};

/// The most limits, groups, and attachments of a kind in a file. More than these are kept better
/// through the API.
pub const ENTRIES_MAX: usize = 10_000;

/// The largest file, in bytes: what the most entries of every section take if they are generous.
pub const FILE_LEN_MAX: usize = 8 << 20;

/// A configuration whose values are all good.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from; `None` for a text.
    pub source: Option<Arc<SourceFile>>,
    /// Additions of the command line.
    pub flags: Flags,
    /// Addresses of the listeners.
    pub listen: Listen,
    /// Listeners that speak TLS.
    pub tls: Tls,
    /// Access to the admin API.
    pub admin: Admin,
    /// The node's place in a cluster; `None` for a node that is always master.
    pub cluster: Option<ClusterConfig>,
    /// The coordinator that it borrows from; `None` for a root.
    pub parent: Option<ParentConfig>,
    /// Store of groups, attachments and overrides that are written through the API.
    pub store: StoreConfig,
    /// Scopes of the resources of Doorman's clients.
    pub doorman: DoormanScopes,
    /// Domains of the rate limit quota service.
    pub rlqs: RlqsDomains,
    /// Scopes of the descriptors of Envoy's rate limit service.
    pub rls: Arc<RlsDomains>,
    /// Bounds of the lease tables.
    pub bounds: Bounds,
    /// Bounds of connections.
    pub connections: ConnectionBounds,
    /// Limits, groups and attachments.
    pub catalog: Arc<FileCatalog>,
    /// Text that the nodes of the cluster share, once it is read; its values are in the other fields.
    pub shared: Option<Arc<[u8]>>,
}

/// Additions of the command line to a configuration, also when its file changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// As `admin.insecure`.
    pub insecure_admin: bool,
    /// As `listen.insecure_grpc`.
    pub insecure_grpc: bool,
    /// URLs in the place of `parent.addresses`, unless there are none.
    pub parents: Vec<String>,
}

/// A file and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path.
    pub path: PathBuf,
    /// Its content, when it was read.
    pub content: Vec<u8>,
}

/// Reason for which a file has no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// It has errors.
    #[error("{}", located(file, errors))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// All of them.
        errors: ConfigErrors,
    },
}

// === impl Config ===

impl Config {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// All errors of it.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        Self::parse_with(text, &Flags::default(), Path::new(""))
    }

    /// Like [`Config::parse`], but the listeners may be as insecure as `flags` allow, and relative
    /// paths start at `folder`.
    fn parse_with(text: &str, flags: &Flags, folder: &Path) -> Result<Self, ConfigErrors> {
        let mut raw: raw::RawConfig = yaml::read_or_default(text)?;
        let shared = raw.take_shared();
        let mut check = Check::beside(folder);
        check.is_below_parent = raw.parent.is_some() || !flags.parents.is_empty();
        let listen = Listen::check(&mut check, raw.listen.as_ref());
        let tls = tls::tls(&mut check, raw.tls.as_ref(), raw.cluster.is_some());
        let admin = admin::admin(&mut check, raw.admin.as_ref());
        refuse_insecure(&mut check, &raw, flags, (&listen, &tls, &admin));
        let cluster = cluster::cluster(&mut check, raw.cluster.as_ref(), &listen, &tls);
        let parent = parent::parent(&mut check, raw.parent.as_ref());
        if let (Some(raw), Some(parent)) = (&raw.parent, &parent)
            && let Err((field, rule)) = parent.check(cluster.is_some())
        {
            check.refuse(raw.at, field, rule);
        }
        let store = StoreConfig::check(&mut check, raw.store.as_ref(), raw.cluster.is_some());
        let bounds = bounds::bounds(&mut check, raw.bounds.as_ref());
        let connections = connections::connections(&mut check, raw.connections.as_ref());
        let catalog_bounds = bounds::catalog_bounds(&mut check, raw.bounds.as_ref());
        let shared = if cluster
            .as_ref()
            .is_some_and(|cluster| cluster.shared_config)
        {
            shared.refuse(&mut check);
            Some(Shared::unread(catalog_bounds))
        } else {
            shared.check(&mut check, catalog_bounds)
        };
        let config = shared.map(|shared| Self {
            source: None,
            flags: Flags::default(),
            listen,
            tls,
            admin,
            cluster,
            parent,
            store,
            doorman: shared.doorman,
            rlqs: shared.rlqs,
            rls: Arc::new(shared.rls),
            bounds,
            connections,
            catalog: Arc::new(shared.catalog),
            shared: None,
        });
        check.end(config)
    }

    /// Warnings about parts of the file that can never have an effect.
    pub fn warnings(&self) -> Vec<ConfigError> {
        self.text()
            .map_or_else(Vec::new, |text| self.warnings_of(text))
    }

    /// Warnings about limits of the file that match no scope of the rules that clients of a running
    /// coordinator have asked for in the last `time`.
    pub fn unmatched_warnings(&self, known: &KnownRules<'_>, time: &str) -> Vec<ConfigError> {
        let raw = self
            .text()
            .and_then(|text| yaml::read_or_default(text).ok());
        raw.map_or_else(Vec::new, |raw| unmatched::warnings(&raw, self, known, time))
    }

    /// Warnings about `text`, of which this configuration was made.
    fn warnings_of(&self, text: &str) -> Vec<ConfigError> {
        let raw = yaml::read_or_default(text);
        raw.map_or_else(|_| Vec::new(), |raw| warnings::warnings(&raw, self))
    }

    /// The text of its file.
    fn text(&self) -> Option<&str> {
        let source = self.source.as_ref()?;
        utf8(&source.content).ok()
    }

    /// Whether it shares limits, groups, attachments and the scopes of other protocols with other
    /// nodes.
    pub fn shares(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.shared_config)
    }

    /// The same node with `text` shared by the nodes of its cluster.
    ///
    /// # Errors
    /// All errors of `text`.
    pub fn with_shared(&self, text: &[u8]) -> Result<Self, ConfigErrors> {
        let raw: RawShared = yaml::read_or_default(utf8(text)?)?;
        let mut check = Check::default();
        let shared = raw.check(&mut check, self.catalog.bounds);
        let shared = check.end(shared)?;
        Ok(Self {
            doorman: shared.doorman,
            rlqs: shared.rlqs,
            rls: Arc::new(shared.rls),
            catalog: Arc::new(shared.catalog),
            shared: Some(text.into()),
            ..self.clone()
        })
    }

    /// This configuration in the place of `current`, which is in force: with the same shared text.
    ///
    /// # Errors
    /// If one shares and the other does not.
    pub fn instead_of(self, current: &Self) -> Result<Self, ConfigErrors> {
        if self.shares() != current.shares() {
            let rule = "can only change with a restart";
            return Err(ConfigErrors::nowhere("cluster.shared_config", rule));
        }
        match &current.shared {
            Some(text) => self.with_shared(text),
            None => Ok(self),
        }
    }

    /// Reads a configuration file, with `flags`.
    ///
    /// # Errors
    /// If it cannot be read, or all errors of it.
    pub fn load(path: &Path, flags: Flags) -> Result<Self, LoadError> {
        Self::of_file(SourceFile::read(path)?, flags)
    }

    /// Reads the text of `source`, with `flags`.
    ///
    /// # Errors
    /// All errors of it.
    pub fn of_file(source: SourceFile, flags: Flags) -> Result<Self, LoadError> {
        let folder = source.path.parent().unwrap_or_else(|| Path::new(""));
        let parsed = utf8(&source.content)
            .and_then(|text| Self::parse_with(text, &flags, folder))
            .and_then(|config| config.with_parents(&flags.parents));
        let mut config = parsed.map_err(|errors| LoadError::Wrong {
            file: source.path.clone(),
            errors,
        })?;
        config.admin.insecure |= flags.insecure_admin;
        config.source = Some(Arc::new(source));
        config.flags = flags;
        Ok(config)
    }

    /// The same with a parent at `addresses`, unless there are none.
    fn with_parents(mut self, addresses: &[String]) -> Result<Self, ConfigErrors> {
        if !addresses.is_empty() {
            let parent = ParentConfig::at(self.parent.take(), addresses);
            let checked = parent.check(self.cluster.is_some());
            checked.map_err(|(field, rule)| ConfigErrors::nowhere(field, rule))?;
            self.parent = Some(parent);
        }
        Ok(self)
    }

    /// Checks the files for TLS.
    ///
    /// # Errors
    /// The section of the first that cannot be used, and the reason.
    pub fn try_files(&self) -> Result<(), (&'static str, TlsError)> {
        for (listener, files) in self.tls.each() {
            let loaded = files.load(listener).map(drop);
            loaded.map_err(|error| (CertificateOwner::from(listener).section(), error))?;
        }
        let cluster = self.cluster.as_ref();
        let etcd = cluster.and_then(|cluster| cluster.etcd.tls.as_ref());
        let nodes = cluster.and_then(|cluster| cluster.tls.as_ref());
        let parent = self.parent.as_ref().and_then(|parent| parent.tls.as_ref());
        for (section, files) in [
            ("cluster.etcd.tls", etcd),
            (CertificateOwner::Cluster.section(), nodes),
            (CertificateOwner::Parent.section(), parent),
        ] {
            let loaded = files.map(|files| files.load()).transpose();
            loaded.map_err(|error| (section, error))?;
        }
        Ok(())
    }

    /// The fields that differ in `new` and are read only at the start.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let fields = [
            ("listen", self.listen != new.listen),
            ("tls", self.tls != new.tls),
            ("cluster", self.cluster != new.cluster),
            ("parent", self.parent != new.parent),
            ("store", self.store != new.store),
            ("bounds", self.bounds != new.bounds),
            ("connections", self.connections != new.connections),
        ];
        let changed = fields.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(field, _)| field).collect()
    }

    /// The path of the store's file and whether it is made at the start; none for memory.
    pub fn store_path(&self) -> Option<(PathBuf, bool)> {
        let file = self.source.as_ref().map(|source| &*source.path);
        self.store.path(file)
    }
}

// === impl LoadError ===

impl LoadError {
    /// Whether there is no such file.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Read { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

// === impl SourceFile ===

impl SourceFile {
    /// Reads `path`, a regular file; of one that is too large to be a configuration only as much as
    /// shows it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let read = files::read(path, FILE_LEN_MAX as u64 + 1);
        Self::of(path, read.map(|(bytes, _)| bytes))
    }

    /// Like [`SourceFile::read`], but also from a pipe, and for as long as that takes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_any(path: &Path) -> Result<Self, LoadError> {
        let most = FILE_LEN_MAX as u64 + 1;
        let mut content = Vec::new();
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut content));
        Self::of(path, read.map(|_| content))
    }

    /// The bytes of the file.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    fn of(path: &Path, read: io::Result<Vec<u8>>) -> Result<Self, LoadError> {
        let path = path.to_owned();
        match read {
            Ok(content) => Ok(Self { path, content }),
            Err(cause) => Err(LoadError::Read { file: path, cause }),
        }
    }
}

// === free functions ===

/// Refuses listeners that other machines can reach and that do not keep them out.
fn refuse_insecure(
    check: &mut Check,
    raw: &raw::RawConfig,
    flags: &Flags,
    (listen, tls, admin): (&Listen, &Tls, &Admin),
) {
    let raw = raw.listen.as_ref();
    let chosen = raw.and_then(|raw| raw.insecure_grpc.as_ref());
    let chosen = check.value(chosen, "listen.insecure_grpc", values::yes_or_no);
    let insecure_grpc = chosen.unwrap_or(false) || flags.insecure_grpc;
    // A default in the place of a wrong value may look insecure although the file is secure.
    if check.count() > 0 {
        return;
    }
    if !flags.insecure_admin
        && let Some(missing) = admin.missing_protection(listen.http, tls.http.is_some())
    {
        let at = listen::at(raw.and_then(|raw| raw.http.as_ref()));
        let rule = format!(
            "{} can be reached from other machines, and that needs {missing}; to serve without, \
             say `admin.insecure: true` or --insecure-admin",
            listen.http
        );
        check.refuse(at, "listen.http", rule);
    }
    if !insecure_grpc && tls.grpc.is_none() && !is_loopback(listen.grpc) {
        let at = listen::at(raw.and_then(|raw| raw.grpc.as_ref()));
        let rule = format!(
            "{} can be reached from other machines, and that needs TLS (tls.grpc.cert and \
             tls.grpc.key); to serve without, say `listen.insecure_grpc: true` or --insecure-grpc",
            listen.grpc
        );
        check.refuse(at, "listen.grpc", rule);
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ConfigErrors> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|error| ConfigErrors::nowhere("", format!("the file is not UTF-8: {error}")))
}

/// Each error on its own line, as `file:line:column: field: rule`.
fn located(file: &Path, errors: &ConfigErrors) -> String {
    let file = file.display();
    let count = errors.0.len();
    let noun = if count == 1 { "error" } else { "errors" };
    let mut text = format!("{count} {noun} in {file}");
    for error in &errors.0 {
        let separator = if error.line > 0 { ":" } else { ": " };
        text.push_str(&format!("\n{file}{separator}{error}"));
    }
    text
}

#[cfg(test)]
mod tests;
