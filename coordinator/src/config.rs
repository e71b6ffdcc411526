//! The configuration file: what is leased, and where the coordinator listens.
//!
//! A file is accepted as a whole or refused as a whole. Every error has the line and column, the
//! field and the rule it breaks; all values are checked before any is reported, so that one run
//! shows everything. Only what is wrong with the shape of the file (an unknown field, a list where
//! a number belongs) is reported alone, because nothing after it can be trusted.
//!
//! Each section has a file of its own, with its shape and its rules. What comes through the API is
//! judged by the same rules: [`check_group`], [`check_attachment`], [`check_override`].

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::node::Bounds;

use crate::catalog::{FileCatalog, Kind};
use crate::doorman::Scopes;

mod admin;
mod attach;
mod bounds;
mod check;
mod doorman;
mod error;
mod groups;
mod limits;
mod listen;
mod raw;
mod store;
mod tls;
mod unit;

pub use admin::{Admin, Exposed, Public};
pub use attach::check_attachment;
pub use error::{ConfigError, ConfigErrors, Problem};
pub use groups::check_group;
pub use limits::check_override;
pub use listen::Listen;
pub use store::StoreConfig;
pub use tls::Tls;

/// The most limits, groups, and attachments of a kind in a file. More than these are kept better
/// through the API.
pub const ENTRIES_MAX: usize = 10_000;

/// The largest file, in bytes: what the most entries of every section take if they are generous.
pub const FILE_LEN_MAX: usize = 8 << 20;

/// A configuration whose values are all good.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it was read from; none if that was no file.
    pub source: Option<Arc<SourceFile>>,
    /// What the command line adds to it.
    pub flags: Flags,
    /// Where to listen.
    pub listen: Listen,
    /// Which doors speak TLS.
    pub tls: Tls,
    /// Who may use the admin API.
    pub admin: Admin,
    /// Where to keep what is written through the API.
    pub store: StoreConfig,
    /// Which scopes the resources of Doorman's clients are.
    pub doorman: Scopes,
    /// How much to keep in the books at most.
    pub bounds: Bounds,
    /// Limits, groups and attachments.
    pub catalog: Arc<FileCatalog>,
}

/// What the command line adds to a configuration, also when its file changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// As `admin.insecure`.
    pub insecure_admin: bool,
}

/// A file and what stood in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its content, when it was read.
    pub content: Vec<u8>,
}

/// Why a file has no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("{}: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// What stands in it is wrong.
    #[error("{}", located(file, errors))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// Everything that is wrong.
        errors: ConfigErrors,
    },
    /// It would leave the admin API open.
    #[error(transparent)]
    Exposed(#[from] Exposed),
}

// === impl Config ===

impl Config {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        let raw = raw::read(text)?;
        let mut check = check::Check::default();
        let listen = Listen::check(&mut check, raw.listen.as_ref());
        let tls = tls::tls(&mut check, raw.tls.as_ref());
        let admin = admin::admin(&mut check, raw.admin.as_ref());
        let store = StoreConfig::check(&mut check, raw.store.as_ref());
        let doorman = doorman::doorman(&mut check, raw.doorman.as_ref());
        let bounds = bounds::bounds(&mut check, raw.bounds.as_ref());
        let catalog_bounds = bounds::catalog_bounds(&mut check, raw.bounds.as_ref());
        let groups = groups::groups(&mut check, raw.groups.as_ref());
        let limits = limits::limits(&mut check, raw.limits.as_ref(), &groups);
        let mut attached = |kind| {
            let raw = raw.attach.as_ref().and_then(|raw| raw.of(kind));
            attach::attachments(&mut check, kind, raw, &groups)
        };
        let (tenants, namespaces) = (attached(Kind::Tenant), attached(Kind::Namespace));
        let config = limits.map(|limits| Self {
            source: None,
            flags: Flags::default(),
            listen,
            tls,
            admin,
            store,
            doorman,
            bounds,
            catalog: Arc::new(FileCatalog {
                limits,
                groups,
                tenants,
                namespaces,
                bounds: catalog_bounds,
            }),
        });
        check.end(config)
    }

    /// Reads a configuration file, with `flags`.
    ///
    /// # Errors
    /// If it cannot be read, or everything that is wrong with it.
    pub fn load(path: &Path, flags: Flags) -> Result<Self, LoadError> {
        Self::of_file(SourceFile::read(path)?, flags)
    }

    /// What `source` and `flags` say.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn of_file(source: SourceFile, flags: Flags) -> Result<Self, LoadError> {
        let mut config = match Self::parse_bytes(&source.content) {
            Ok(config) => config,
            Err(errors) => {
                let file = source.path;
                return Err(LoadError::Wrong { file, errors });
            }
        };
        config.tls = config.tls.beside(&source.path);
        config.source = Some(Arc::new(source));
        config.flags = flags;
        config.admin.insecure |= flags.insecure_admin;
        config
            .admin
            .may_listen(config.listen.http, config.tls.http.is_some())?;
        Ok(config)
    }

    /// The fields that are others in `new` and are looked at only at the start.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let fields = [
            ("listen", self.listen != new.listen),
            ("tls", self.tls != new.tls),
            ("store", self.store != new.store),
            ("bounds", self.bounds != new.bounds),
        ];
        let changed = fields.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(field, _)| field).collect()
    }

    /// The path of the store's file and whether it is made at the start; none for memory.
    pub fn store_path(&self) -> Option<(PathBuf, bool)> {
        let file = self.source.as_ref().map(|source| &*source.path);
        self.store.path(file)
    }

    fn parse_bytes(bytes: &[u8]) -> Result<Self, ConfigErrors> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => Err(ConfigErrors::whole(Problem::Shape(error.to_string()))),
        }
    }
}

// === impl SourceFile ===

impl SourceFile {
    /// Reads `path`; of a file that is too large to be a configuration only as much as shows it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let most = FILE_LEN_MAX as u64 + 1;
        let mut content = Vec::new();
        let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut content));
        let path = path.to_owned();
        match read {
            Ok(_) => Ok(Self { path, content }),
            Err(cause) => Err(LoadError::Read { file: path, cause }),
        }
    }
}

// === free functions ===

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
