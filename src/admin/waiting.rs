//! `/waiting`: everything that waits, in all projects.

use std::sync::{Arc, OnceLock};

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, task};

use crate::plan::management::waiting::{self, Answer};

/// Answers one request at a time: one unpacks every deployment that waits.
const AT_ONCE: usize = 1;

type Respond = dyn Fn(&waiting::Query, Timestamp) -> Result<Answer, String> + Send + Sync;

/// Access to what waits. It is empty without management controllers, and until they have started.
#[derive(Clone)]
pub struct WaitingList(Arc<Inner>);

struct Inner {
    respond: OnceLock<Box<Respond>>,
    turns: Semaphore,
}

impl Default for WaitingList {
    fn default() -> Self {
        Self(Arc::new(Inner { respond: OnceLock::new(), turns: Semaphore::new(AT_ONCE) }))
    }
}

impl WaitingList {
    /// Sets the function that answers requests. Only the first call counts.
    pub fn is_answered_by(
        &self,
        respond: impl Fn(&waiting::Query, Timestamp) -> Result<Answer, String> + Send + Sync + 'static,
    ) {
        let _ = self.0.respond.set(Box::new(respond));
    }
}

/// Answers with JSON. The manager's workers are not delayed: the work is done on a thread of its own.
pub(super) async fn list(
    State(list): State<WaitingList>,
    query: Result<Query<waiting::Query>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{}\n", error.body_text())).into_response(),
    };
    // The semaphore is never closed.
    let _turn = list.0.turns.acquire().await;
    let inner = list.0.clone();
    let answer =
        task::spawn_blocking(move || inner.respond.get().map(|respond| respond(&query, Timestamp::now()))).await;
    match answer {
        Ok(Some(Ok(answer))) => Json(answer).into_response(),
        Ok(Some(Err(error))) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        Ok(None) => {
            (StatusCode::NOT_FOUND, "this manager has no management controllers, or is starting\n").into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made\n").into_response(),
    }
}
