//! Everything that talks to an API server: clients, watches and their caches, writes, the work queue, the Lease. And sockets
//! to serve on, with TLS.

pub mod apply;
mod cache;
pub mod certificate;
pub mod clients;
pub mod clock;
mod confidential;
pub mod feed;
pub mod health;
pub mod lease;
pub mod list;
pub mod listen;
pub mod packed;
pub mod pool;
pub mod queue;
pub mod requests;
pub mod reviews;
pub mod serve;
pub mod sources;
pub mod store;
pub mod watch;

use std::time::Duration;

/// What went wrong with an API call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server, or the way to it, said no. `call` names verb, object and control plane.
    #[error("{call}: {}", explain(source))]
    Api {
        /// What was asked of whom.
        call: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{call}: no answer within {} s", after.as_secs())]
    Deadline {
        /// What was asked of whom.
        call: String,
        /// How long we waited.
        after: Duration,
    },
    /// Something stands where a live read was to find nothing; look again.
    #[error("{0} is still there")]
    StillThere(String),
    /// Something that a live read was to find is not there, or is another of its name.
    #[error("{0} is not there")]
    NotThere(String),
    /// It may not be deleted at present.
    #[error("delete {0}: deletions wait there, for many known objects are missing")]
    Held(String),
    /// The answer was not what this call answers with.
    #[error("{call}: unexpected answer: {why}")]
    Answer {
        /// What was asked of whom.
        call: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Try again later, with growing patience.
    Retry,
    /// Somebody was faster: look at the new state soon.
    Conflict,
    /// It is gone; for what wanted it gone, a success.
    Gone,
    /// A person must grant a permission.
    Forbidden,
    /// A person must change the object.
    Invalid,
}

impl Error {
    /// Whether the server said that something is not there: what, by its plural. `None` for every other answer, and
    /// empty when the path itself is not served (a missing definition, a server that is another than was meant).
    pub fn missing(&self) -> Option<&str> {
        let Self::Api { source, .. } = self else { return None };
        match source.as_ref() {
            kube::Error::Api(status) if status.code == 404 => Some(status.details.as_ref().map_or("", |d| &d.kind)),
            _ => None,
        }
    }

    /// Whether the server did not know who asked.
    pub fn is_unauthenticated(&self) -> bool {
        self.code() == Some(401)
    }

    /// The HTTP status of the answer, when there was one.
    fn code(&self) -> Option<u16> {
        let Self::Api { source, .. } = self else { return None };
        if let kube::Error::Api(status) = source.as_ref() { Some(status.code) } else { None }
    }

    /// Whether the server knows no more of what was asked for: a version to watch from, or the rest of a list.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// How to react.
    pub fn class(&self) -> Class {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => match status.code {
                    404 | 410 => Class::Gone,
                    409 => Class::Conflict,
                    401 | 403 => Class::Forbidden,
                    400 | 405 | 413 | 415 | 422 => Class::Invalid,
                    _ => Class::Retry,
                },
                _ => Class::Retry,
            },
            Self::Deadline { .. } | Self::Answer { .. } | Self::Held(_) => Class::Retry,
            Self::StillThere(_) => Class::Conflict,
            Self::NotThere(_) => Class::Gone,
        }
    }

    /// A label for metrics, from a closed set.
    pub fn label(&self) -> &'static str {
        match (self, self.class()) {
            (Self::Deadline { .. }, _) => "deadline",
            (Self::StillThere(_), _) => "still_there",
            (Self::NotThere(_), _) => "not_there",
            (Self::Held(_), _) => "held",
            (Self::Answer { .. }, _) => "answer",
            (Self::Api { .. }, Class::Retry) => "retry",
            (Self::Api { .. }, Class::Conflict) => "conflict",
            (Self::Api { .. }, Class::Gone) => "gone",
            (Self::Api { .. }, Class::Forbidden) => "forbidden",
            (Self::Api { .. }, Class::Invalid) => "invalid",
        }
    }
}

/// The part of a kube error that helps: the server's message, or the innermost cause of a transport failure.
fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() { format!("HTTP {}", status.code) } else { status.message.clone() };
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Longest wait for the answer to one call. kube itself would wait for ever on a server that accepts and stays silent.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `call` with a deadline.
///
/// # Errors
/// [`Error::Deadline`] when there is no answer in time, else [`Error::Api`]; both carry `what`.
pub async fn deadline<T>(
    after: Duration,
    what: impl FnOnce() -> String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match tokio::time::timeout(after, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api { call: what(), source: Box::new(source) }),
        Err(_) => Err(Error::Deadline { call: what(), after }),
    }
}
