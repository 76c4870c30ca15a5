//! Exit codes, for scripts.

/// Result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// All is well.
    Well,
    /// Something is in progress, and no person has to act.
    InProgress,
    /// The platform has to act.
    Platform,
    /// A tenant has to act.
    Tenant,
    /// An API server or the manager could not be asked, or it does not have the object.
    CouldNotAsk,
    /// The arguments are wrong.
    Usage,
    /// The time ran out.
    Timeout,
}

impl Exit {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::CouldNotAsk => 1,
            Self::Usage => 2,
            Self::Tenant => 3,
            Self::Platform => 4,
            Self::InProgress => 5,
            Self::Timeout => 124,
        }
    }
}
