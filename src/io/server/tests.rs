use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const LONG: Duration = Duration::from_mins(1);

/// A server without TLS. A request for `/slow` stays in progress until the test ends it.
async fn server(connections: usize) -> (SocketAddr, Arc<Notify>, CancellationToken) {
    let (end, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    let slow = end.clone();
    let router = Router::new().route("/", get(async || "ok")).route(
        "/slow",
        get(async move || {
            slow.notified().await;
            "slow"
        }),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let limits = Limits { connections, first: LONG, next: LONG };
    tokio::spawn(serve("a test", listener, Transport::Plain, router, limits, stop.clone()));
    (at, end, stop)
}

async fn sent(at: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// True if the server closes the connection within a moment.
async fn is_cut(stream: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(300), stream.read(&mut [0; 4096])).await.is_ok_and(|read| read.unwrap_or(0) == 0)
}

/// Returns the first line of an answer.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = [0; 4096];
    let read = timeout(LONG, stream.read(&mut text)).await.unwrap().unwrap();
    String::from_utf8_lossy(&text[..read]).lines().next().unwrap_or_default().to_owned()
}

const ASK: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ASK_SLOWLY: &str = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn server_full_closes_the_oldest_idle_connection_and_none_in_progress() {
    let (at, end, stop) = server(3).await;
    let mut slow = sent(at, ASK_SLOWLY).await;
    let mut idle = sent(at, ASK).await;
    assert_eq!(answer(&mut idle).await, "HTTP/1.1 200 OK");
    let mut half = sent(at, "GET / HTTP/1.1\r\n").await;
    assert!(!is_cut(&mut half).await, "three may be open");
    // A fourth replaces the connection that has sent no request.
    let mut fourth = sent(at, ASK).await;
    assert_eq!(answer(&mut fourth).await, "HTTP/1.1 200 OK");
    assert!(is_cut(&mut half).await);
    idle.write_all(ASK.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut idle).await, "HTTP/1.1 200 OK");
    // A fifth replaces the one that has been idle for longest.
    let mut fifth = sent(at, ASK).await;
    assert_eq!(answer(&mut fifth).await, "HTTP/1.1 200 OK");
    assert!(is_cut(&mut fourth).await && !is_cut(&mut idle).await);
    end.notify_one();
    assert_eq!(answer(&mut slow).await, "HTTP/1.1 200 OK", "a request in progress is not cut");
    stop.cancel();
}

#[tokio::test]
async fn server_with_all_connections_in_progress_makes_a_new_one_wait() {
    let (at, end, stop) = server(1).await;
    let mut slow = sent(at, ASK_SLOWLY).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut next = sent(at, ASK).await;
    assert!(timeout(Duration::from_millis(300), next.read(&mut [0; 16])).await.is_err(), "neither cut nor answered");
    end.notify_one();
    assert_eq!(answer(&mut slow).await, "HTTP/1.1 200 OK");
    assert_eq!(answer(&mut next).await, "HTTP/1.1 200 OK");
    stop.cancel();
}

#[tokio::test]
async fn server_head_longer_than_the_limit_is_refused() {
    let (at, _, stop) = server(3).await;
    let mut long = sent(at, &format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(HEAD))).await;
    assert!(answer(&mut long).await.starts_with("HTTP/1.1 431"));
    stop.cancel();
}

async fn is_healthy(at: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(at).await else { return false };
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut text = String::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_string(&mut text).await.is_ok()
        && text.starts_with("HTTP/1.1 200 OK")
}

#[tokio::test]
async fn server_listening_without_a_host_serves_both_families() {
    for (text, v6, v4) in [("[::]:0", true, true), ("0.0.0.0:0", false, true), ("127.0.0.1:0", false, true)] {
        let listener = listen(text.parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = axum::Router::new().route("/healthz", axum::routing::get(async || "ok"));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        assert_eq!(is_healthy((Ipv4Addr::LOCALHOST, port).into()).await, v4, "{text} for IPv4");
        let ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        assert_eq!(is_healthy((Ipv6Addr::LOCALHOST, port).into()).await, v6 && ipv6, "{text} for IPv6");
        server.abort();
    }
}

#[tokio::test]
async fn server_port_in_use_is_an_error() {
    let first = listen("[::]:0".parse().unwrap()).unwrap();
    let error = listen(first.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
