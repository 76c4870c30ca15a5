//! Room for bodies over real connections. `src/admission/room_tests.rs` measures waits, with a virtual clock.

use super::*;

#[tokio::test]
async fn review_beside_stalled_bodies_is_answered() {
    let bed = Arc::new(bed(false).await);
    let (sent, done) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    for kib in [0, 30, 40, 300].repeat(3) {
        let (bed, sent, done) = (bed.clone(), sent.clone(), done.clone());
        tokio::spawn(async move {
            while !done.is_cancelled() {
                let Ok(mut stream) = bed.connect().await else { continue };
                let head = format!(
                    "POST {VALIDATE_WORKLOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n{{{}",
                    7 << 20,
                    " ".repeat(kib << 10)
                );
                let _ = stream.write_all(head.as_bytes()).await;
                sent.fetch_add(1, Ordering::Relaxed);
                // One byte twice a second, until the server cuts the connection.
                while stream.write_all(b" ").await.is_ok() && !done.is_cancelled() {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        });
    }
    until("twelve clients stall", || sent.load(Ordering::Relaxed) >= 12).await;
    for kib in [1, 300].repeat(6) {
        let mut request = creation("tls", "dfw", &json!({}));
        request["object"]["metadata"]["annotations"] = json!({ "note": " ".repeat(kib << 10) });
        let (code, answer) = bed.ask(MUTATE_WORKLOAD, &request).await;
        assert_eq!((code, &answer["response"]["allowed"]), (200, &json!(true)), "{answer}");
    }
    done.cancel();
}

#[tokio::test]
async fn body_without_progress_is_answered_with_a_timeout() {
    let bed = bed(false).await;
    let rest = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{", 7 << 20);
    let (code, _) = bed.raw(&format!("POST {VALIDATE_WORKLOAD}"), rest.as_bytes()).await;
    assert_eq!(code, 408);
}
