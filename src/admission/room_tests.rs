//! Bodies beside slow, hostile clients. The clock is virtual, so only waits that the room imposes are measured.

use axum::http::HeaderValue;
use futures::stream;
use tokio::time::{Instant, sleep};

use super::*;

/// A body that sends `kib` KiB at once, and then one byte every half second.
fn stalled(kib: usize) -> Body {
    let first = Bytes::from(" ".repeat(kib << 10));
    let rest = stream::repeat_with(|| Bytes::from_static(b" ")).then(async |byte| {
        sleep(Duration::from_millis(500)).await;
        byte
    });
    Body::from_stream(stream::iter([first]).chain(rest).map(Ok::<_, std::io::Error>))
}

/// Starts clients that announce `announced` bytes, send some KiB each, stall, and reconnect when the room cuts them.
async fn besiege(room: &Room, announced: usize, sent: impl IntoIterator<Item = usize>) {
    for kib in sent {
        let room = room.clone();
        tokio::spawn(async move {
            loop {
                let code = room.read(Some(&announced.into()), stalled(kib)).await.err().map(|answer| answer.status());
                assert_eq!(code, Some(StatusCode::REQUEST_TIMEOUT));
            }
        });
    }
    // All of them have sent what they send before they stall.
    sleep(Duration::from_millis(100)).await;
}

/// Returns the wait of a body of `kib` KiB whose client sends all of it at once.
async fn wait(room: &Room, kib: usize) -> Duration {
    let began = Instant::now();
    let body = Bytes::from(" ".repeat(kib << 10));
    let length: HeaderValue = body.len().into();
    room.read(Some(&length), Body::from(body)).await.expect("it is read");
    began.elapsed()
}

/// A client reserved all the room for its announced size. Every later review was answered 408, in every project.
#[tokio::test(start_paused = true)]
async fn body_beside_stalled_larger_ones_waits_for_none() {
    let room = Room::default();
    besiege(&room, MAX_BODY, [0, 30, 40, 300].repeat(3)).await;
    for _ in 0..12 {
        assert_eq!((wait(&room, 1).await, wait(&room, 300).await), (Duration::ZERO, Duration::ZERO));
        sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn body_beside_stalled_ones_of_its_size_waits_until_they_are_cut() {
    let room = Room::default();
    besiege(&room, SEAT, [40].repeat(2 * SEATS)).await;
    for _ in 0..12 {
        assert_eq!(wait(&room, 1).await, Duration::ZERO);
        // Those that have a seat, and those that queue before it.
        assert!(wait(&room, 300).await <= 3 * PATIENCE, "it is answered within its client's patience");
        sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn body_without_progress_is_cut_after_a_second() {
    let (room, began) = (Room::default(), Instant::now());
    let silent = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = room.read(Some(&MAX_BODY.into()), silent).await.err().expect("it is cut");
    assert_eq!((answer.status(), began.elapsed()), (StatusCode::REQUEST_TIMEOUT, SILENCE));
}
