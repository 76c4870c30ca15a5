//! Probes during connections of hostile clients.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::*;

/// Returns the status line of a probe over its own connection, as a kubelet probes.
async fn probe(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// 300 unfinished request heads took 113 of the pod's 128 MiB and were never dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_beside_unfinished_heads_is_answered_and_heads_are_cut() {
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let stop = CancellationToken::new();
    serve_health(free, Health::default(), None, stop.clone()).unwrap();
    let hostile: Vec<_> = (0..300)
        .map(|_| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(free).await.unwrap();
                // Sends until the server stops reading, and at most what hyper would have kept.
                let _ = stream.write_all(b"GET /readyz HTTP/1.1\r\nx: ").await;
                for _ in 0..400 {
                    if timeout(Duration::from_millis(50), stream.write_all(&[b'x'; 1024])).await.is_err() {
                        break;
                    }
                }
                // A reset connection has ended as well.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            })
        })
        .collect();
    for _ in 0..20 {
        // A kubelet waits for one second. Here other tests use the processors, so only the answer counts.
        let answered = timeout(Duration::from_secs(20), probe(free)).await;
        assert_eq!(answered.expect("a probe is answered").unwrap(), "HTTP/1.1 200 OK");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for one in hostile {
        timeout(PROBES.first + Duration::from_secs(5), one).await.expect("each head is cut").unwrap();
    }
    stop.cancel();
}
