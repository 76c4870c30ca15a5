//! Bodies of requests, of which only so much is held at a time, and for no client longer than it sends.
//!
//! Room is taken for bytes that have arrived, not for those announced. The first [`SMALL`] bytes of a body need none: they are
//! bounded by the number of connections, so that a small review waits for no other client. A larger one needs a seat, of which
//! there are [`SEATS`] for bodies that announce at most [`SEAT`] and [`LARGE_SEATS`] for larger ones. A seat is room for all that
//! its body may be: it waits for no second one, and a client that does not send loses it.

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

/// Largest request: two objects of the size that API servers take, with room for what stands around them.
pub(super) const MAX_BODY: usize = 7 << 20;

/// Size up to which a body needs no room but its connection's.
const SMALL: usize = 32 << 10;

/// Largest body of the first kind of seats.
const SEAT: usize = 1 << 20;

/// Bodies of more than [`SMALL`] that are held at a time, of those that announce at most [`SEAT`].
const SEATS: usize = 8;

/// The same, of larger ones and of those that announce nothing.
const LARGE_SEATS: usize = 2;

/// Longest wait for a request's body, and for room to hold it.
const BODY: Duration = Duration::from_secs(5);

/// Longest time without progress of a body.
const SILENCE: Duration = Duration::from_secs(1);

/// Longest time that the client of a body with a seat may be waited for, all together, and [`PER_MIB`] for each that has come.
const PATIENCE: Duration = Duration::from_secs(1);

/// Networks slower than that are none of a control plane.
const PER_MIB: Duration = Duration::from_millis(500);

/// Room for bodies.
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

/// The room that a body takes. To be kept as long as the body, and no longer: while a project's API server is waited for,
/// others need the room.
pub(super) struct Held {
    _seat: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Reads a body as it arrives, with room for what has arrived of it.
    ///
    /// # Errors
    /// The answer to give instead.
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
                Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))
            }
            Ok(Err(code)) => Err(refuse(code, "the body broke off, or was longer than said")),
        }
    }

    async fn arrive(&self, length: usize, body: Body) -> Result<(Bytes, Held), StatusCode> {
        let (mut chunks, mut read, mut seat) = (body.into_data_stream(), Vec::new(), None);
        let seats = if length > SEAT { &self.large } else { &self.seats };
        // How long the client was waited for since its body has a seat.
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

/// An answer that is no AdmissionReview, after which the connection ends: the rest of the body may still be on its way.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, [(header::CONNECTION, "close")], why.to_owned()).into_response()
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
