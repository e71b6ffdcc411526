//! Failures of commands, each with an exit code.

/// Failure of a command. Each variant has an exit code of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error while the command ran.
    Runtime(anyhow::Error),
    /// Arguments, a configuration or an input that the user has to change.
    Usage(anyhow::Error),
    /// The subject of the command does not exist.
    Missing(anyhow::Error),
    /// The user's token is missing, unknown or of too low a role.
    Refused(anyhow::Error),
    /// The change contradicts the stored state.
    Conflict(anyhow::Error),
    /// The work is done and shown, but a file with it could not be written.
    Incomplete(anyhow::Error),
}

// === impl Failure ===

impl Failure {
    pub(crate) fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Adds the `kind` and `name` of the subject to a failure that is about the user's input.
    pub(crate) fn about(self, kind: &str, name: &str) -> Self {
        let about = |error: anyhow::Error| error.context(format!("{kind} {name}"));
        match self {
            Self::Usage(error) => Self::Usage(about(error)),
            Self::Missing(error) => Self::Missing(about(error)),
            Self::Conflict(error) => Self::Conflict(about(error)),
            other => other,
        }
    }

    /// Returns the error and the exit code that the help text promises for it.
    pub(crate) fn into_parts(self) -> (anyhow::Error, u8) {
        match self {
            Self::Runtime(error) => (error, 1),
            Self::Usage(error) => (error, 2),
            Self::Missing(error) => (error, 3),
            Self::Refused(error) => (error, 4),
            Self::Conflict(error) => (error, 5),
            Self::Incomplete(error) => (error, 6),
        }
    }
}
