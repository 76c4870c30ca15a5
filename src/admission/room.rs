//! Bodies of requests, of which only so much is held at a time.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Largest request: two objects of the size that API servers take, with room for what stands around them.
pub(super) const MAX_BODY: usize = 7 << 20;

/// Bodies that are held at a time, all together, in KiB. An object takes several times its text.
const MAX_HELD_KIB: u32 = 8 << 10;

/// Longest wait for a request's body, and for room to hold it.
const BODY: Duration = Duration::from_secs(5);

/// How much of bodies is held.
#[derive(Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_HELD_KIB as usize)))
    }
}

impl Room {
    /// Reads a body, once there is room for it. The permit is to be kept as long as the body, and no longer: while a
    /// project's API server is waited for, others need the room.
    ///
    /// # Errors
    /// The answer to give instead.
    pub(super) async fn read(
        &self,
        length: Option<&axum::http::HeaderValue>,
        body: Body,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Response> {
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok()).unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("at most {MAX_BODY} bytes")));
        }
        let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(MAX_HELD_KIB);
        let read = async {
            let permit = self.0.clone().acquire_many_owned(kib).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
            let bytes = to_bytes(body, length).await.map_err(|_| StatusCode::BAD_REQUEST)?;
            Ok::<_, StatusCode>((bytes, permit))
        };
        match timeout(BODY, read).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(code)) => Err(refuse(code, "the body broke off, or was longer than said")),
            Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }
}

/// An answer that is no AdmissionReview, after which the connection ends: the rest of the body may still be on its way.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, [(header::CONNECTION, "close")], why.to_owned()).into_response()
}
