//! Bounded memory for request bodies.
//!
//! Memory is taken for bytes that have arrived, not for announced ones. The first [`SMALL`] bytes of a body need no seat: the
//! number of connections bounds them, so a small review waits for no other client. A larger body needs a seat. There are
//! [`SEATS`] for bodies that announce at most [`SEAT`], and [`LARGE_SEATS`] for larger ones. One seat covers the whole body, so
//! no body waits for a second one. A client that does not send loses its seat.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

/// Largest request: two objects of the size that API servers accept, and the review around them.
pub(super) const MAX_BODY: usize = 7 << 20;

/// Size up to which a body needs no seat.
const SMALL: usize = 32 << 10;

/// Largest body for the first kind of seats.
const SEAT: usize = 1 << 20;

/// Seats for bodies that announce at most [`SEAT`].
const SEATS: usize = 8;

/// Seats for bodies that announce more, or no length.
const LARGE_SEATS: usize = 2;

/// Longest wait for a request's body and for its seat.
const BODY: Duration = Duration::from_secs(5);

/// Longest time without progress of a body.
const SILENCE: Duration = Duration::from_secs(1);

/// Longest total wait for the client of a body with a seat; [`PER_MIB`] is added for each MiB received.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time per MiB. No network of a control plane is slower.
const PER_MIB: Duration = Duration::from_millis(500);

/// Seats for bodies.
#[derive(Clone)]
pub(super) struct Room {
    seats: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { seats: Arc::new(Semaphore::new(SEATS)), large: Arc::new(Semaphore::new(LARGE_SEATS)) }
    }
}

/// The seat of a body. Keep it as long as the body and no longer: other requests need it while this one waits for a project's API
/// server.
pub(super) struct Held {
    _seat: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Reads a body as it arrives, and takes a seat once it is large.
    ///
    /// # Errors
    /// The response to send instead.
    pub(super) async fn read(
        &self,
        length: Option<&axum::http::HeaderValue>,
        body: Body,
    ) -> Result<(Bytes, Held), Response> {
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok()).unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("at most {MAX_BODY} bytes")));
        }
        match timeout(BODY, self.arrive(length, body)).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(StatusCode::REQUEST_TIMEOUT)) | Err(_) => {
                Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
            }
            Ok(Err(code)) => Err(refuse(code, "the body was cut off, or longer than its Content-Length")),
        }
    }

    async fn arrive(&self, length: usize, body: Body) -> Result<(Bytes, Held), StatusCode> {
        let (mut chunks, mut read, mut seat) = (body.into_data_stream(), Vec::new(), None);
        let seats = if length > SEAT { &self.large } else { &self.seats };
        // Time spent waiting for the client since the body has a seat.
        let mut waited = Duration::ZERO;
        loop {
            let mib = u32::try_from(read.len() >> 20).unwrap_or_default();
            let patience = if seat.is_some() { (PATIENCE + PER_MIB * mib).saturating_sub(waited) } else { SILENCE };
            let asked = Instant::now();
            let chunk = timeout(patience.min(SILENCE), chunks.next()).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
            if seat.is_some() {
                waited += asked.elapsed();
            }
            let Some(chunk) = chunk else { break };
            let chunk = chunk.map_err(|_| StatusCode::BAD_REQUEST)?;
            let size = read.len() + chunk.len();
            if size > length {
                return Err(StatusCode::BAD_REQUEST);
            }
            if size > SMALL && seat.is_none() {
                seat = Some(seats.clone().acquire_owned().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?);
            }
            read.extend_from_slice(&chunk);
        }
        Ok((Bytes::from(read), Held { _seat: seat }))
    }
}

/// A response that is no AdmissionReview. It closes the connection: the rest of the body may still arrive.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, [(header::CONNECTION, "close")], why.to_owned()).into_response()
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
