//! Names of the coordinators above one another, so that none borrows from itself.
//!
//! A coordinator that calls its parent sends its name, and the answer has the names of the parent
//! and of the parent's ancestors. A coordinator that finds its own name there is configured below
//! itself: two such would lend each other capacity that neither has. It uses no such answer.
//!
//! In a cluster only masters call the parent. A node that forwards a child's call marks it so for
//! the master, and takes the ancestors from the master's answer before it writes its own.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// In calls: the name of the calling coordinator.
const CHILD: &str = "tollgate-child";

/// In answers: the name of the answering coordinator and its ancestors, the nearest first.
const PATH: &str = "tollgate-path";

/// The most coordinators above one another. It also ends a loop that never shows the same name.
pub const LEVELS_MAX: usize = 8;

/// A coordinator's name and its ancestors; clones share the ancestors.
#[derive(Clone, Debug)]
pub struct AncestorPath {
    name: Arc<str>,
    above: Arc<watch::Sender<Arc<[String]>>>,
}

/// Reason for which an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoopError {
    /// The parent is this coordinator, or below it.
    #[error("the parent borrows from this coordinator, {name}: it is below {}", path.join(", below "))]
    Loop {
        /// This coordinator.
        name: String,
        /// The parent and its ancestors.
        path: Vec<String>,
    },
    /// Too many levels.
    #[error("there are more than {LEVELS_MAX} coordinators above this one")]
    TooDeep,
}

// === impl AncestorPath ===

impl AncestorPath {
    /// A coordinator called `name` without known ancestors.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            above: Arc::new(watch::Sender::new(Arc::new([]))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the ancestors, the parent first; empty until it has answered.
    pub fn above(&self) -> Arc<[String]> {
        self.above.borrow().clone()
    }

    /// Whether the metadata is that of a coordinator's call, direct or forwarded.
    pub fn is_from_child(call: &MetadataMap) -> bool {
        call.contains_key(CHILD)
    }

    /// Marks the metadata of a call as a coordinator's: this one's, or one that it forwards.
    pub(crate) fn name_child(&self, call: &mut MetadataMap) {
        if let Ok(name) = AsciiMetadataValue::try_from(self.name()) {
            call.insert(CHILD, name);
        }
    }

    /// Writes the path into the metadata of an answer to a coordinator.
    pub fn write_path(&self, answer: &mut MetadataMap) {
        let above = self.above();
        let names = std::iter::once(&*self.name).chain(above.iter().map(|name| &**name));
        let path = names.collect::<Vec<_>>().join(",");
        if let Ok(path) = AsciiMetadataValue::try_from(path) {
            answer.insert(PATH, path);
        }
    }

    /// Takes the ancestors from a master's answer to a forwarded call. They are this node's as
    /// well; a master that does not know any yet sends none.
    pub(crate) fn read_master_path(&self, answer: &MetadataMap) {
        let above: Vec<String> = path(answer).into_iter().skip(1).collect();
        if !above.is_empty() {
            self.set(above);
        }
    }

    /// Takes the path from the parent's answer; returns the number of ancestors.
    ///
    /// # Errors
    /// If this coordinator is among them, or they are too many.
    pub(super) fn read_parent_path(&self, answer: &MetadataMap) -> Result<u32, LoopError> {
        let path = path(answer);
        if path.iter().any(|name| **name == *self.name) {
            return Err(LoopError::Loop {
                name: self.name.as_ref().to_owned(),
                path,
            });
        }
        if path.len() > LEVELS_MAX {
            return Err(LoopError::TooDeep);
        }
        let level = u32::try_from(path.len()).unwrap_or(u32::MAX).max(1);
        self.set(path);
        Ok(level)
    }

    fn set(&self, path: Vec<String>) {
        self.above.send_if_modified(|above| {
            let changed = **above != *path;
            if changed {
                *above = path.into();
            }
            changed
        });
    }
}

// === free functions ===

/// The names in an answer's metadata, at most one more than are allowed.
fn path(answer: &MetadataMap) -> Vec<String> {
    let path = answer.get(PATH).and_then(|path| path.to_str().ok());
    let names = path.into_iter().flat_map(|path| path.split(','));
    names.take(LEVELS_MAX + 1).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(by: &AncestorPath) -> MetadataMap {
        let mut answer = MetadataMap::new();
        by.write_path(&mut answer);
        answer
    }

    #[test]
    fn who_asks_is_told_from_an_envoy() {
        let mut call = MetadataMap::new();
        assert!(!AncestorPath::is_from_child(&call));
        AncestorPath::new("leaf").name_child(&mut call);
        assert!(AncestorPath::is_from_child(&call));
    }

    #[test]
    fn a_node_that_leads_nothing_hears_from_the_master_who_is_above() {
        let [root, master, node, leaf] = ["root", "eu", "eu", "leaf"].map(AncestorPath::new);
        node.read_master_path(&signed(&master));
        assert!(node.above().is_empty());
        assert_eq!(master.read_parent_path(&signed(&root)), Ok(1));
        node.read_master_path(&signed(&master));
        assert_eq!(leaf.read_parent_path(&signed(&node)), Ok(2));
        // A master that was elected just now knows no ancestors.
        node.read_master_path(&signed(&AncestorPath::new("eu")));
        assert_eq!(*node.above(), ["root"]);
        // A loop that the node alone would not have shown.
        assert!(root.read_parent_path(&signed(&node)).is_err());
    }

    #[test]
    fn who_is_above_is_known_two_levels_down() {
        let [root, region, leaf] = ["root", "region", "leaf"].map(AncestorPath::new);
        assert_eq!(region.read_parent_path(&signed(&root)), Ok(1));
        assert_eq!(leaf.read_parent_path(&signed(&region)), Ok(2));
        assert_eq!(*leaf.above(), ["region", "root"]);
    }

    #[test]
    fn nobody_is_below_itself() {
        let [a, b] = ["a", "b"].map(AncestorPath::new);
        let itself = a.read_parent_path(&signed(&a)).unwrap_err().to_string();
        assert_eq!(
            itself,
            "the parent borrows from this coordinator, a: it is below a"
        );
        assert_eq!(a.read_parent_path(&signed(&b)), Ok(1));
        let loop_ = b.read_parent_path(&signed(&a)).unwrap_err();
        assert!(matches!(loop_, LoopError::Loop { .. }));
        assert!(b.above().is_empty());
    }

    #[test]
    fn levels_are_bounded() {
        let names: Vec<_> = (0..20).map(|i| AncestorPath::new(&i.to_string())).collect();
        let mut deep = names
            .windows(2)
            .map(|pair| pair[1].read_parent_path(&signed(&pair[0])));
        let levels = (1..=LEVELS_MAX as u32).map(Ok);
        assert!(deep.by_ref().take(LEVELS_MAX).eq(levels));
        assert_eq!(deep.next(), Some(Err(LoopError::TooDeep)));
    }
}
