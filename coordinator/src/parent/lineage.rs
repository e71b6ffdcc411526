//! Who is above whom, so that nobody borrows from itself.
//!
//! A coordinator that asks its parent says its name, and the answer comes with the names of the
//! parent and of all who are above it. Who finds its own name there has been configured below
//! itself: two such would lend each other what neither has. It uses no such answer.

use std::sync::Arc;

use tokio::sync::watch;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// In calls: the name of the coordinator that asks.
pub(super) const CHILD: &str = "tollgate-child";

/// In answers: the names of who answers and of those above, the nearest first.
const PATH: &str = "tollgate-path";

/// The most coordinators above one another. A loop that does not come back to the same name ends
/// here as well.
pub const LEVELS_MAX: usize = 8;

/// A coordinator's name and those above it.
#[derive(Clone, Debug)]
pub struct Lineage {
    name: Arc<str>,
    above: Arc<watch::Sender<Arc<[String]>>>,
}

/// Why an answer is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoopError {
    /// The parent is this coordinator, or below it.
    #[error("the parent borrows from this coordinator, {name}: it is below {}", path.join(", below "))]
    Loop {
        /// This one.
        name: String,
        /// The parent and those above it.
        path: Vec<String>,
    },
    /// Too many levels.
    #[error("there are more than {LEVELS_MAX} coordinators above this one")]
    TooDeep,
}

// === impl Lineage ===

impl Lineage {
    /// A coordinator called `name`, with nobody known above it.
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

    /// Those above it, the parent first; empty until that has answered.
    pub fn above(&self) -> Arc<[String]> {
        self.above.borrow().clone()
    }

    /// Says in the metadata of an answer who answers, if `call` came from a coordinator.
    pub fn sign(&self, call: &MetadataMap, answer: &mut MetadataMap) {
        if !call.contains_key(CHILD) {
            return;
        }
        let above = self.above();
        let names = std::iter::once(&*self.name).chain(above.iter().map(|name| &**name));
        let path = names.collect::<Vec<_>>().join(",");
        if let Ok(path) = AsciiMetadataValue::try_from(path) {
            answer.insert(PATH, path);
        }
    }

    /// Takes the metadata of the parent's answer; how many there are above this one.
    ///
    /// # Errors
    /// If this coordinator is among them, or they are too many.
    pub(super) fn read(&self, answer: &MetadataMap) -> Result<u32, LoopError> {
        let path = answer.get(PATH).and_then(|path| path.to_str().ok());
        let path: Vec<String> = path.map_or_else(Vec::new, |path| {
            path.split(',')
                .take(LEVELS_MAX + 1)
                .map(str::to_owned)
                .collect()
        });
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
        self.above.send_if_modified(|above| {
            let changed = **above != *path;
            if changed {
                *above = path.into();
            }
            changed
        });
        Ok(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(by: &Lineage) -> MetadataMap {
        let (mut call, mut answer) = (MetadataMap::new(), MetadataMap::new());
        by.sign(&call, &mut answer);
        assert!(answer.is_empty(), "an Envoy needs no path");
        call.insert(CHILD, AsciiMetadataValue::from_static("x"));
        by.sign(&call, &mut answer);
        answer
    }

    #[test]
    fn who_is_above_is_known_two_levels_down() {
        let [root, region, leaf] = ["root", "region", "leaf"].map(Lineage::new);
        assert_eq!(region.read(&signed(&root)), Ok(1));
        assert_eq!(leaf.read(&signed(&region)), Ok(2));
        assert_eq!(*leaf.above(), ["region", "root"]);
    }

    #[test]
    fn nobody_is_below_itself() {
        let [a, b] = ["a", "b"].map(Lineage::new);
        let itself = a.read(&signed(&a)).unwrap_err().to_string();
        assert_eq!(
            itself,
            "the parent borrows from this coordinator, a: it is below a"
        );
        assert_eq!(a.read(&signed(&b)), Ok(1));
        let loop_ = b.read(&signed(&a)).unwrap_err();
        assert!(matches!(loop_, LoopError::Loop { .. }));
        assert!(b.above().is_empty());
    }

    #[test]
    fn levels_are_bounded() {
        let names: Vec<_> = (0..20).map(|i| Lineage::new(&i.to_string())).collect();
        let mut deep = names.windows(2).map(|pair| pair[1].read(&signed(&pair[0])));
        let levels = (1..=LEVELS_MAX as u32).map(Ok);
        assert!(deep.by_ref().take(LEVELS_MAX).eq(levels));
        assert_eq!(deep.next(), Some(Err(LoopError::TooDeep)));
    }
}
