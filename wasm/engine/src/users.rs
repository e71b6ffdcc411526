//! Configurations that use something, such as a rule: no host says when one has gone for good.

use std::sync::{Arc, Weak};

/// A configuration as a user: one as long as this or a copy exists.
#[derive(Clone, Debug, Default)]
pub struct InUse(Arc<()>);

/// Users, oldest first, each with what it brought.
#[derive(Debug)]
pub struct Users<T>(Vec<(Weak<()>, T)>);

// === impl Users ===

impl<T> Users<T> {
    /// Adds a user, or what it brings now, and forgets those that have gone.
    pub fn add(&mut self, user: &InUse, brought: T) {
        let user = Arc::downgrade(&user.0);
        self.0
            .retain(|(other, _)| other.strong_count() > 0 && !other.ptr_eq(&user));
        self.0.push((user, brought));
    }

    /// Returns what its users brought, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let living = self.0.iter().filter(|(user, _)| user.strong_count() > 0);
        living.map(|(_, brought)| brought)
    }

    /// Returns whether nobody uses it.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl<T> Default for Users<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_counts_until_its_last_copy_has_gone() {
        let mut users = Users::default();
        let (first, second) = (InUse::default(), InUse::default());
        users.add(&first, 1);
        users.add(&second, 3);
        users.add(&second, 2);
        let copy = first.clone();
        drop(first);
        assert!(users.iter().eq(&[1, 2]));
        drop(copy);
        assert!(users.iter().eq(&[2]));
        drop(second);
        assert!(users.is_empty());
    }
}
